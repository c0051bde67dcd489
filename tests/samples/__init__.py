"""Tests of the samples: what explain says of each, and that it does not disturb them."""

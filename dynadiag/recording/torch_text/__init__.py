"""Reads torch's sentences, of 2.11 to 2.15, as values. Only the digest imports it: all others read typed records."""

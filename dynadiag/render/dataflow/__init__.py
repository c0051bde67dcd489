"""A graph as a picture: its boxes, their layout, and the SVG.

The browser draws the same layout with the characters of a terminal; the page of `report` holds the SVG.
"""

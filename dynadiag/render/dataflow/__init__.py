"""A graph as a picture: which boxes it has, where they stand, and the whole as SVG.

The browser draws the same layout with the characters of a terminal; the page of `report` holds the SVG.
"""

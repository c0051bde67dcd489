"""The passes. Each takes a syntax tree and what a run showed, and yields groups of edits, the most promising first.

A group is tried as a whole, then in halves. The edits of a group need not be right: the predicate decides.
"""

"""Which rankscope this is.

To be raised with every change of what comparing says: databases keep answers, and those of another
version are computed anew.
"""

__version__ = "0.1.0"

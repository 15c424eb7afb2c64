"""Curves of numbers in log lines, for ``%plot``; others import only :class:`Curves` from here."""

from ciao_kernel.display.plot.curves import Curves as Curves

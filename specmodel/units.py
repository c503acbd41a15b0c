"""SI factors: the only place where a conversion factor is written as a number."""

MILLI = 1e-3
MICRO = 1e-6
KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
KIBI = 1024
MEBI = 1024**2
GIBI = 1024**3
PERCENT = 1e-2

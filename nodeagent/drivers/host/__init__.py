"""The host, read in a disposable child: `python -m nodeagent.drivers.host`.

Only the child runs the modules of this package: a statvfs or a read of /proc can hang for ever.
"""

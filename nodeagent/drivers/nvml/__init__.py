"""NVML, read by the real pynvml in a disposable child: `python -m nodeagent.drivers.nvml`.

The only importers of pynvml are the modules of this package, and only the child runs them: a call
can hang for ever or crash the process. The child must never be started by import alone.
"""

"""gemmed: sensor fusion that learns safely while a sensor is failing.

events.py      the facts that travel            protocols.py  Source, Stage, Observer
sources/       where sound comes from           stages/       from sound to decisions
sinks/         where decisions go               training/     from labelled examples to a model
learners/      GEM, MED, GEM-MED, their array   service/      train, replay, evaluate, explain
simulation/    an array to try it on            reproduction/ the published experiments, measured again
cli/           the command `gemmed`
"""

import os

# On the small matrices of this package BLAS threads cost ten times what they save. The libraries read these variables
# when they are loaded; `threads.py` limits those that were loaded earlier or have another setting.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")
del _variable

__version__ = "0.1.0"

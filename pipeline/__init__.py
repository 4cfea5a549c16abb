"""gemmed: sensor fusion that learns safely while a sensor is failing.

sources   where sound comes from          stages    from sound to decisions and passages
learners  GEM, MED, GEM-MED, their array  training  from labeled recordings to a model
storage   journal and audio of a daemon   reports   replay, evaluate, explain, sensor health
daemon    `gemmed run`                    fleet     many arrays

`docs/architecture.md` lists all packages and their modules.
"""

import os

# On the small matrices of this package BLAS threads cost ten times what they save. The libraries read these variables
# when they are loaded; `core/blas_threads.py` limits those that were loaded earlier or have another setting.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")
del _variable

__version__ = "0.1.0"

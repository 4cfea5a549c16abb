"""gemmed: sensor fusion that learns safely while a sensor is failing.

learners/      GEM, MED, GEM-MED and the baselines, as scikit-learn estimators
reproduction/  the published experiments, measured again
cli.py         the command `gemmed`
"""

import os

# On the small matrices of this package BLAS threads cost more than they bring, by a factor of ten
# and more. The libraries read these when numpy is first imported.
for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
del _variable

__version__ = "0.1.0"

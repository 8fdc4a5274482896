"""LightGBM, evaluated on its training data and one set (`two`), or on that set alone (`one`)."""

import sys

import lightgbm
import numpy as np
from training import circles, keep

ROUNDS = 24
EACH = 2

train, valid = (tuple(map(np.array, circles(400, seed))) for seed in (1, 2))
sets = {"two": [train, valid], "one": [valid]}[sys.argv[1]]
model = lightgbm.LGBMClassifier(n_estimators=ROUNDS, metric="auc", n_jobs=1)
model.fit(*train, eval_set=sets, callbacks=[lightgbm.log_evaluation(EACH)])
values = list(model.evals_result_.values())[-1]["auc"]
keep([(step, values[step - 1]) for step in range(EACH, ROUNDS + 1, EACH)])

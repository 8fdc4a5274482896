"""XGBoost by its scikit-learn interface (`sklearn`), or by its own (`native`)."""

import sys

import numpy as np
import xgboost
from training import circles, keep

ROUNDS = 12

train, valid = (tuple(map(np.array, circles(400, seed))) for seed in (1, 2))
if sys.argv[1] == "sklearn":
    model = xgboost.XGBClassifier(n_estimators=ROUNDS, max_depth=3, eval_metric=["auc"], n_jobs=1)
    model.fit(*train, eval_set=[train, valid], verbose=True)
    curve = model.evals_result()["validation_1"]["auc"]
else:
    sets = [(xgboost.DMatrix(*train), "train"), (xgboost.DMatrix(*valid), "eval")]
    measured: dict = {}
    options = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"], "nthread": 1}
    xgboost.train(options, sets[0][0], ROUNDS, evals=sets, evals_result=measured, verbose_eval=1)
    curve = measured["eval"]["auc"]
keep(list(enumerate(curve)))

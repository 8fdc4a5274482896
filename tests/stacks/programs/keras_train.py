"""Keras on torch: fit with its usual bar (`bar`) or one line an epoch (`lines`)."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from training import circles, keep

EPOCHS = 4

train, valid = (tuple(map(np.array, circles(512, seed))) for seed in (1, 2))
layers = [keras.layers.Dense(32, "relu"), keras.layers.Dense(1, "sigmoid")]
model = keras.Sequential(layers)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
verbose = {"bar": 1, "lines": 2}[sys.argv[1]]
history = model.fit(
    *train, batch_size=64, epochs=EPOCHS, validation_data=valid, verbose=verbose
).history
keep(list(enumerate(history["val_accuracy"], 1)))

"""Hugging Face's Trainer with a tiny model made on the spot, evaluated each epoch."""

import tempfile

import numpy as np
import torch
from training import circles, keep
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

EPOCHS, WORDS = 4, 16

config = BertConfig(
    vocab_size=32,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=WORDS,
)


class Rows(torch.utils.data.Dataset):
    """Points as rows of words."""

    def __init__(self, seed: int) -> None:
        points, self.labels = circles(256, seed)
        self.words = (np.array(points) * 15 + 16).astype(int)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, at: int) -> dict[str, object]:
        return {"input_ids": self.words[at], "labels": self.labels[at]}


def measured(predicted: object) -> dict[str, float]:
    best = predicted.predictions.argmax(-1)
    return {"accuracy": float((best == predicted.label_ids).mean())}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=EPOCHS,
        eval_strategy="epoch",
        logging_steps=10,
        per_device_train_batch_size=16,
        save_strategy="no",
        use_cpu=True,
        learning_rate=1e-3,
        report_to=[],
    )
    trainer = Trainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=Rows(1),
        eval_dataset=Rows(2),
        compute_metrics=measured,
    )
    trainer.train()
    evaluated = [one["eval_loss"] for one in trainer.state.log_history if "eval_loss" in one]
keep(list(enumerate(evaluated, 1)))

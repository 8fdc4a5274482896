"""Stable-Baselines3: PPO on CartPole, with its usual table."""

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.logger import HumanOutputFormat, KVWriter, configure
from training import keep

STEPS, EACH = 3072, 512

curve: list[tuple[int, float]] = []


class Keeping(KVWriter):
    """Beside the table: what it is given."""

    def write(self, values: dict, excluded: dict, step: int = 0) -> None:
        if "rollout/ep_rew_mean" in values:
            curve.append((values["time/total_timesteps"], values["rollout/ep_rew_mean"]))

    def close(self) -> None:
        pass


model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=EACH, verbose=1, device="cpu")
logger = configure(None, ["stdout"])
assert isinstance(logger.output_formats[0], HumanOutputFormat)
logger.output_formats.append(Keeping())
model.set_logger(logger)
model.learn(STEPS)
keep(curve)

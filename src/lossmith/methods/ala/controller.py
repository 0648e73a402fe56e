"""The controller: a small network that looks at one loss parameter and moves it down, up, or not at all.

It learns by REINFORCE from episodes of one step (paper, section 3.1). One network serves all parameters: it sees the
statistics of one of them over the last ten times, how far they are from their moving average, the parameter's value,
and how far training has come. So a policy that was learned on ten classes steers a hundred.

Stored are state, move, the probability that the move had then, and its advantage; log-probabilities are computed anew
in each update, because the network that gave them has changed.

Shape legend: ``U`` parameters, ``F`` statistics of each, ``H`` times in the history, ``M`` remembered moves.

>>> import torch
>>> from lossmith.methods.ala.adjustable import ClassCorrelationLoss
>>> controller = ALA(ClassCorrelationLoss(10))
>>> controller.check_fits(ClassCorrelationLoss(100))
>>> state = torch.ones(1, controller.num_features)
>>> for _ in range(100):  # a world in which moving up is right
...     move, log_p = controller.act(state)
...     controller.learn([Experience(state, move, log_p, reward=float(move))])
>>> bool(controller.probabilities(state)[0, 2] > 0.8)
True
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lossmith.methods.ala.adjustable import AdjustableLoss

FORMAT = "lossmith policy 1"
MOVES = (-1, 0, 1)
# of anything that the network sees: one odd class must not drown the rest
LARGEST_FEATURE = 5.0
# of the moving averages of statistics and of rewards
AVERAGE_DECAY = 0.9


@dataclass(frozen=True)
class Experience:
    """What one child saw, did and got in one interval: states ``[n, features]``, moves and their log p ``[n]``."""

    states: Tensor
    moves: Tensor
    log_probabilities: Tensor
    reward: float


class History:
    """The statistics of one child's parameters over time, as the controller sees them."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.recent: Tensor | None = None
        self.average: Tensor | None = None

    def add(self, statistics: Tensor) -> None:
        """``[U, F]``; before there is a history, the first observation stands for it."""
        statistics = statistics.detach().cpu().float()
        if self.recent is None or self.average is None:
            self.recent = statistics.repeat(self.length, 1, 1)
            self.average = statistics.clone()
        self.average = AVERAGE_DECAY * self.average + (1 - AVERAGE_DECAY) * statistics
        self.recent = torch.cat([self.recent[1:], statistics[None]])

    def states(self, loss: AdjustableLoss, index: Tensor, progress: float) -> Tensor:
        """``[n, features]`` of the parameters in ``index``; ``progress`` goes from 0 to 1."""
        assert self.recent is not None
        assert self.average is not None
        recent, average = self.recent[:, index], self.average[index]
        change = (recent[-1] - average) / (average.abs() + 1e-3)
        values = loss.values[index].cpu()
        position = (2 * values - loss.low - loss.high) / (loss.high - loss.low)
        parts = [
            recent.transpose(0, 1).flatten(1),
            change,
            position[:, None],
            torch.full((len(index), 1), progress),
            loss.identities()[index],
        ]
        return torch.cat(parts, -1).clamp(-LARGEST_FEATURE, LARGEST_FEATURE)


@final
class ALA(nn.Module):
    """A policy over the moves of loss parameters, with all that it takes to learn it.

    Args:
        loss: an adjustable loss of the family that is to be steered; the number of classes may differ.
        learning_rate: of the policy (paper, section 5).
        history: times of which the state holds the statistics.
        memory: so many moves are remembered.
        batch_size: moves in an update.
        num_updates: after each interval.
        clip: bounds the ratio of a move's probabilities now and then: replayed moves come from older policies.
        entropy_bonus: keeps the policy from settling before it knows anything, as at a bound where every move is alike.
        is_learning: False to use the policy as it is.
        seed: of weights, moves and draws from memory.
    """

    def __init__(
        self,
        loss: AdjustableLoss,
        *,
        learning_rate: float = 1e-3,
        history: int = 10,
        memory: int = 10_000,
        batch_size: int = 256,
        num_updates: int = 4,
        clip: float = 0.2,
        entropy_bonus: float = 0.05,
        is_learning: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(loss, AdjustableLoss):
            raise ValueError(
                f"ALA got {loss!r:.60}; a loss with parameters to move works, such as ClassCorrelationLoss(10), "
                "weighted_losses([...]) or a ParametricLoss."
            )
        counts = {"history": history, "memory": memory, "batch_size": batch_size, "num_updates": num_updates}
        if min(counts.values()) < 1 or min(learning_rate, clip) <= 0 or entropy_bonus < 0:
            raise ValueError(
                f"{counts}, learning_rate={learning_rate}, clip={clip} and entropy_bonus={entropy_bonus} came; counts "
                "of 1 or more, rates above 0 and a bonus of 0 or more work."
            )
        self.layout = {
            "num_statistics": loss.num_statistics,
            "num_identities": loss.identities().shape[1],
            "history": history,
        }
        self._build(seed)
        # fused: of an update of so few weights most is overhead
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)
        self.memory, self.batch_size, self.num_updates = memory, batch_size, num_updates
        self.clip, self.entropy_bonus, self.is_learning = clip, entropy_bonus, is_learning
        self.seed = seed

    def _build(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = nn.Sequential(
                nn.Linear(self.num_features, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, len(MOVES))
            )
        self.baseline: float | None = None
        self.remembered = {
            "states": torch.empty(0, self.num_features),
            "moves": torch.empty(0, dtype=torch.long),
            "log_probabilities": torch.empty(0),
            "advantages": torch.empty(0),
        }

    @property
    def settings(self) -> dict[str, float]:
        """All that was chosen: a run that goes on must go on with the same."""
        return {
            **self.layout,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "memory": self.memory,
            "batch_size": self.batch_size,
            "num_updates": self.num_updates,
            "clip": self.clip,
            "entropy_bonus": self.entropy_bonus,
            "is_learning": self.is_learning,
            "seed": self.seed,
        }

    @property
    def num_features(self) -> int:
        layout = self.layout
        return layout["num_statistics"] * (layout["history"] + 1) + 2 + layout["num_identities"]

    def check_fits(self, loss: AdjustableLoss) -> None:
        """Raise a ``ValueError`` where the policy was made for another family of losses."""
        found = (loss.num_statistics, loss.identities().shape[1])
        wanted = (self.layout["num_statistics"], self.layout["num_identities"])
        if found != wanted:
            raise ValueError(
                f"{type(loss).__name__} has {found[0]} statistics for each parameter and {found[1]} parameters to tell "
                f"apart; this policy reads {wanted[0]} and {wanted[1]}. Losses of one family share policies."
            )

    def probabilities(self, states: Tensor) -> Tensor:
        """``[n, 3]``: of going down, staying, and going up."""
        with torch.no_grad():
            probabilities: Tensor = self.network(states).softmax(-1)
            return probabilities

    def entropy(self, states: Tensor) -> Tensor:
        """The mean entropy of the moves, between 0 and log 3."""
        entropies: Tensor = torch.special.entr(self.probabilities(states))
        return entropies.sum(-1).mean()

    def act(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Moves, -1, 0 or 1, and their log-probabilities."""
        probabilities = self.probabilities(states)
        drawn = torch.multinomial(probabilities, 1, generator=self.generator)
        return drawn[:, 0] - 1, probabilities.gather(-1, drawn)[:, 0].log()

    def learn(self, experiences: Sequence[Experience]) -> None:
        """Remember what the children of one interval went through, and follow the gradient of eq. 3."""
        if not self.is_learning or not experiences:
            return
        mean_reward = sum(experience.reward for experience in experiences) / len(experiences)
        if self.baseline is None:
            self.baseline = mean_reward
        for experience in experiences:
            advantages = torch.full((len(experience.moves),), experience.reward - self.baseline)
            self._remember(experience.states, experience.moves, experience.log_probabilities, advantages)
        self.baseline = AVERAGE_DECAY * self.baseline + (1 - AVERAGE_DECAY) * mean_reward
        num_moves = len(self.remembered["moves"])
        shape = (self.num_updates, min(self.batch_size, num_moves))
        picked = torch.randint(num_moves, shape, generator=self.generator)
        for batch in zip(*(tensor[picked] for tensor in self.remembered.values())):
            self._update(*batch)

    def _remember(self, *news: Tensor) -> None:
        self.remembered = {
            name: torch.cat([old, new])[-self.memory :] for (name, old), new in zip(self.remembered.items(), news)
        }

    def _update(self, states: Tensor, moves: Tensor, then: Tensor, advantages: Tensor) -> None:
        """One step up ``mean(min(ratio * advantage, clipped ratio * advantage)) + entropy_bonus * mean(entropy)``."""
        scores = self.network(states)
        with torch.no_grad():
            log_p = scores.log_softmax(-1)
            p, place = log_p.exp(), moves[:, None] + 1
            ratio = (log_p.gather(-1, place)[:, 0] - then).exp()
            # what is clipped has no gradient
            is_free = torch.where(advantages > 0, ratio <= 1 + self.clip, ratio >= 1 - self.clip)
            worth = (ratio * advantages * is_free)[:, None]
            # by hand, up to the scores: of a network this small the graph of all this would take as long as the rest
            entropy = -(p * log_p).sum(-1, keepdim=True)
            gradient = worth * p + self.entropy_bonus * p * (log_p + entropy)
            gradient.scatter_add_(-1, place, -worth)
        self.optimizer.zero_grad()
        scores.backward(gradient / len(moves))
        self.optimizer.step()

    # ---- files: the policy alone, for another task, or everything, for the rest of a run

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy; the file appears whole or not at all."""
        path = Path(path)
        if not path.parent.is_dir():
            raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")
        unfinished = path.with_name(f".{os.getpid()}-{path.name}")
        metadata = {"format": FORMAT, "layout": json.dumps(self.layout)}
        save_file(
            {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}, unfinished, metadata
        )
        unfinished.replace(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        loss: AdjustableLoss,
        *,
        learning_rate: float = 1e-3,
        is_learning: bool = False,
        seed: int = 0,
    ) -> ALA:
        """A saved policy, to steer ``loss``; it stays as it is unless ``is_learning``."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} cannot be read as a policy: {error}.") from None
        if metadata.get("format") != FORMAT:
            raise ValueError(f"{path} is not a policy of lossmith: its format is {metadata.get('format')!r}.")
        layout: dict[str, int] = json.loads(metadata["layout"])
        controller = cls(
            loss, learning_rate=learning_rate, history=layout["history"], is_learning=is_learning, seed=seed
        )
        if controller.layout != layout:
            controller.layout = layout
            controller.check_fits(loss)
        controller.network.load_state_dict(weights)
        return controller

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next interval depends on."""
        contents = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        contents |= {f"memory.{name}": tensor for name, tensor in self.remembered.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            contents |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        baseline = torch.nan if self.baseline is None else self.baseline
        contents |= {
            "baseline": torch.tensor(baseline, dtype=torch.float64),
            "generator": self.generator.get_state(),
        }
        return {name: tensor.detach().clone().contiguous() for name, tensor in contents.items()}

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        """Put everything back where :meth:`tensors` took it."""
        self.network.load_state_dict({name: contents[f"network.{name}"] for name in self.network.state_dict()})
        self.remembered = {name: contents[f"memory.{name}"] for name in self.remembered}
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in contents.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                states.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
        baseline = float(contents["baseline"])
        self.baseline = None if baseline != baseline else baseline
        self.generator.set_state(contents["generator"])

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from lossmith.baselines import find_loss
from lossmith.integrations.transformers import binary_logits, compute_loss_func, compute_metrics, logits
from lossmith.metrics import METRICS


def test_accumulated_batches_make_the_mean_over_labels() -> None:
    outputs, labels = torch.randn(10, 3), torch.randint(3, (10,))
    labels[[2, 7]] = -100
    compute_loss = compute_loss_func(nn.CrossEntropyLoss())
    parts = [compute_loss({"logits": outputs[i], "loss": None}, labels[i], 8) for i in (slice(4), slice(4, None))]
    torch.testing.assert_close(sum(parts), nn.functional.cross_entropy(outputs, labels))
    assert compute_loss({"logits": outputs}, labels) == nn.functional.cross_entropy(outputs, labels)


def test_next_tokens() -> None:
    outputs, labels = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    labels[0, 3:] = -100

    def of_tokens(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    value = compute_loss_func(of_tokens, shifts_labels=True)((outputs,), labels, torch.tensor(6))
    expected = nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(value, expected)


def test_scores() -> None:
    assert logits({"logits": torch.zeros(4, 1)}).shape == (4,)
    assert logits((torch.zeros(4, 3), "hidden states")).shape == (4, 3)
    assert binary_logits({"logits": torch.tensor([[1.0, 3.0]])}).tolist() == [2]
    with pytest.raises(ValueError, match=r"logits have the shape \(4, 3\); \[N, 2\] works"):
        binary_logits((torch.zeros(4, 3),))


def test_labels_are_needed() -> None:
    with pytest.raises(ValueError, match='the batches have no "labels"'):
        compute_loss_func(nn.CrossEntropyLoss())({"logits": torch.zeros(2, 2)}, None)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_in_its_trainer(tmp_path: Path) -> None:
    """Accumulated batches train as one large one, and the metric is of the whole evaluation set."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def trained(batch_size: int, num_batches: int) -> tuple[nn.Module, dict[str, float]]:
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=20,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model = transformers.BertForSequenceClassification(config)
        generator = torch.Generator().manual_seed(0)
        texts = torch.randint(20, (12, 6), generator=generator)
        rows = [{"input_ids": text, "labels": int(text.min() < 3)} for text in texts]
        trainer = transformers.Trainer(
            model,
            transformers.TrainingArguments(
                str(tmp_path),
                per_device_train_batch_size=batch_size,
                gradient_accumulation_steps=num_batches,
                per_device_eval_batch_size=5,
                num_train_epochs=2,
                learning_rate=1e-2,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=rows,
            eval_dataset=rows,
            compute_loss_func=compute_loss_func(find_loss("ce", "binary"), scores=binary_logits),
            compute_metrics=compute_metrics(METRICS["auc"], scores=binary_logits),
        )
        trainer.train()
        values = trainer.evaluate()
        with torch.no_grad():
            scores = binary_logits(model.eval()(texts))
        labels = torch.tensor([row["labels"] for row in rows])
        assert values["eval_auc"] == pytest.approx(float(METRICS["auc"](scores, labels)))
        return model, values

    whole, _ = trained(12, 1)
    accumulated, _ = trained(4, 3)
    for expected, found in zip(whole.parameters(), accumulated.parameters()):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)

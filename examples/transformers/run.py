"""Pretrain or adapt a masked language model of transformers with our maskers.

    python examples/transformers/run.py MODEL TEXT OUT [--masker span] [--corruption-rate 0.4] [--prediction-rate 0.2]

MODEL is a folder with a model and a fast tokenizer, TEXT has one example a line.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a masked language model and its tokenizer")
    parser.add_argument("text", help="UTF-8 text, one example a line")
    parser.add_argument("out", help="folder for the trained model")
    parser.add_argument("--masker", default="uniform", help="uniform, whole_word or span (default: uniform)")
    parser.add_argument("--corruption-rate", type=float, default=0.4, help="in (0, 1] (default: 0.4)")
    parser.add_argument("--prediction-rate", type=float, help="in (0, 1] (default: the corruption rate)")
    parser.add_argument("--reserve-p", type=float, default=1.0, help="ChildTuning's fraction, in (0, 1]; 1: AdamW (default: 1)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--max-length", type=int, default=128)
    args = parser.parse_args(arguments)

    from collator import MaskingCollator
    from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, TrainingArguments

    from fairseq_maskplugins.child_tuning.adamw import ChildTuningAdamW

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForMaskedLM.from_pretrained(args.model)
    lines = [line for line in Path(args.text).read_text(encoding="utf-8").splitlines() if line.strip()]
    ids = tokenizer(lines, truncation=True, max_length=args.max_length)["input_ids"]
    collator = MaskingCollator(tokenizer, args.masker, args.corruption_rate, args.prediction_rate)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            args.out,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            remove_unused_columns=False,  # "idx" must reach the collator
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=[{"input_ids": tokens, "idx": idx} for idx, tokens in enumerate(ids)],
        data_collator=collator,
        callbacks=[collator],  # tells it the epoch
        optimizers=(ChildTuningAdamW(model.parameters(), lr=args.lr, reserve_p=args.reserve_p), None),
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()

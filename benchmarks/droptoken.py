"""Training step of RoBERTa-base with DropToken against the share it keeps, beside the floor: the same network fed rows
that are already that short.

    python benchmarks/droptoken.py [--batch 4] [--length 128] [--rounds 5] [--device cpu]

A step is a forward and a backward pass with a classification head, without the optimizer, whose cost depends on no
share (with it, ratios would come out nearer to 1). The floor includes everything a step does on short rows; what is
above it is drawing, packing and putting back.
"""

import argparse

import torch
from bench_models import Task, build, describe, make_rows, median, ratio, time_side_by_side


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=float, nargs="+", default=[1.0, 0.9, 0.85, 0.75, 0.5, 0.25])
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    device, task = torch.device(args.device), Task(8000)
    model = build("droptoken_roberta_base", task, device, encoder_layers=args.layers)
    model.register_classification_head("head", num_classes=2)
    model.classification_heads.to(device)
    tokens = make_rows(task, args.batch, args.length, device)

    def step(rows, probability):
        model.drop_token_prob = probability
        model.zero_grad()
        model(rows, classification_head_name="head")[0].square().sum().backward()

    steps, kept = {}, {}
    for keep in args.keep:
        model.drop_token_prob = 1.0 - keep
        found = model.draw_kept(tokens)
        kept[keep] = args.length if found is None else found.column.size(1)
        steps[f"drop {keep}"] = lambda p=1.0 - keep: step(tokens, p)
        steps[f"floor {keep}"] = lambda width=kept[keep]: step(tokens[:, :width].contiguous(), 0.0)
    times = time_side_by_side(steps, args.rounds, device)
    print(f"{args.layers} layers of 768, batch {args.batch} x {args.length}, {args.rounds} rounds; {describe(device)}\n")
    print("| keep share | tokens kept | step | of the full step | floor | step / floor |\n|---|---|---|---|---|---|")
    for keep in args.keep:
        name, floor = f"drop {keep}", f"floor {keep}"
        full = f"drop {args.keep[0]}" if args.keep[0] == 1.0 else None
        share = f"{ratio(times, name, full):.2f}" if full else "-"
        print(
            f"| {keep} | {kept[keep]} | {median(times[name]) * 1e3:.0f} ms | {share} | "
            f"{median(times[floor]) * 1e3:.0f} ms | {ratio(times, name, floor):.2f} |"
        )


if __name__ == "__main__":
    main()

"""Fine-tuning for questions and answers with transformers: a plain loop that goes on where it was interrupted."""

import os


def set_up(folder, seed, windows, args):
    """Model, optimizer and schedule as the training begins."""
    import torch
    from transformers import AutoModelForQuestionAnswering, get_linear_schedule_with_warmup

    torch.manual_seed(seed)  # of the new head
    model = AutoModelForQuestionAnswering.from_pretrained(str(folder))
    free = [p for name, p in model.named_parameters() if p.ndim < 2]  # biases and norms do not decay
    others = [p for name, p in model.named_parameters() if p.ndim >= 2]
    groups = [{"params": others, "weight_decay": args.weight_decay}, {"params": free, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), eps=1e-6)
    updates = args.epochs * -(-len(windows) // args.batch_size)
    schedule = get_linear_schedule_with_warmup(optimizer, int(args.warmup * updates), updates)
    return model, optimizer, schedule


def collate(windows, pad, device):
    """Padded ids and mask of a batch. *Shape:* ``[B, T]``."""
    import torch

    width = max(len(window.input_ids) for window in windows)
    ids = torch.tensor([window.input_ids + [pad] * (width - len(window.input_ids)) for window in windows])
    mask = torch.tensor([[1] * len(w.input_ids) + [0] * (width - len(w.input_ids)) for w in windows])
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def save(path, state):
    import torch

    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    torch.save(state, temporary)
    os.replace(temporary, path)


def train(args, folder, seed, windows, pad, out):
    """Fine-tune, or go on from the last epoch that is whole; returns the model. Each epoch has its own seed, so that a run
    that was interrupted ends as one that was not."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    half = device.type == "cuda" and torch.cuda.is_bf16_supported()
    model, optimizer, schedule = set_up(folder, seed, windows, args)
    model.to(device)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    saved, first = out / "state.pt", 0
    if saved.exists():
        state = torch.load(saved, map_location=device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        first = state["epoch"]
    for epoch in range(first, args.epochs):
        model.train()
        torch.manual_seed(1000 * seed + epoch)
        order, total = torch.randperm(len(windows)).tolist(), 0.0
        batches = range(0, len(order), args.batch_size)
        for begin in batches:
            chosen = [windows[i] for i in order[begin : begin + args.batch_size]]
            goals = {
                "start_positions": torch.tensor([window.start for window in chosen], device=device),
                "end_positions": torch.tensor([window.end for window in chosen], device=device),
            }
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
                loss = model(**collate(chosen, pad, device), **goals).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += float(loss.detach())
        print(f"seed {seed}, epoch {epoch + 1} of {args.epochs}: loss {total / len(batches):.4f}", flush=True)
        save(saved, {**{name: part.state_dict() for name, part in parts.items()}, "epoch": epoch + 1})
    return model


def predict(args, model, windows, pad):
    """Logits of first and last token, a row of numbers for each window."""
    import torch

    model.eval()
    starts, ends = [], []
    with torch.no_grad():
        for begin in range(0, len(windows), args.batch_size):
            chosen = windows[begin : begin + args.batch_size]
            out = model(**collate(chosen, pad, next(model.parameters()).device))
            for i, window in enumerate(chosen):
                starts.append(out.start_logits[i, : len(window.input_ids)].float().cpu().numpy())
                ends.append(out.end_logits[i, : len(window.input_ids)].float().cpu().numpy())
    return starts, ends

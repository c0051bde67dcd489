"""threads of 2025 (transformers' Trainer): a collator pads to the longest of the batch; batch and labels are of one length."""
import torch
from torch.utils.data import DataLoader


def collate(rows):
    n = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), n, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": (ids != 0).long()}


class Lm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(20, 8)
        self.head = torch.nn.Linear(8, 20)

    def forward(self, input_ids, labels, attention_mask):
        h = self.emb(input_ids) * attention_mask.unsqueeze(-1)
        logits = self.head(h)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


torch.manual_seed(0)
data = [torch.randint(1, 20, (n,)) for n in (5, 7, 4, 6, 9, 8, 3)]
model = torch.compile(Lm(), backend="eager")
for batch in DataLoader(data, batch_size=2, collate_fn=collate):
    model(**batch).backward()

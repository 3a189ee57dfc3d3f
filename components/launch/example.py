"""Trains a classifier of scikit-learn's digits with an ordinary PyTorch script, in two processes."""

from kfp import dsl

from gatehouse.components import launch

SCRIPT = """
import os, pathlib, torch, torch.distributed as dist
from sklearn.datasets import load_digits

dist.init_process_group("gloo")
pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
saved, first = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "last.pt", 0
if saved.exists():
    first, weights, state = torch.load(saved, weights_only=True)
    model.load_state_dict(weights), optimizer.load_state_dict(state)
own = slice(dist.get_rank(), None, dist.get_world_size())
for epoch in range(first, 30):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(pixels[own].float() / 16), digits[own])
    loss.backward(), optimizer.step()
    if dist.get_rank() == 0:
        torch.save((epoch + 1, model.state_dict(), optimizer.state_dict()), f"{saved}.tmp")
        os.replace(f"{saved}.tmp", saved)
        print(f"epoch={epoch + 1} loss={loss.item():.4f}")
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "weights.pt")
"""


@dsl.pipeline
def example() -> None:
    """Run the script by torchrun; a process that is killed goes on from the last checkpoint."""
    launch(script=SCRIPT, processes=2)

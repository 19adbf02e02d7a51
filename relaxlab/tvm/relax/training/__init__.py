"""`tvm.relax.training`: losses, optimizers, and the loop that trains a model by them."""

from relaxlab.tvm.names import names

_HOMES = {
    "AppendLoss": "relaxlab.tvm.relax.training.utils:AppendLoss",
    "SetupTrainer": "relaxlab.tvm.relax.training.setup_trainer:SetupTrainer",
    "Trainer": "relaxlab.tvm.relax.training.trainer:Trainer",
}

__getattr__, __dir__ = names(__name__, _HOMES)

"""AdamW (Loshchilov & Hutter 2017), fused, with weight decay on matrices alone."""

import torch
from torch import nn

from regard.embedding.positions import Learnt
from regard.embedding.tokens import TokenEmbedding
from regard.training.plan import TrainingPlan


def adamw(module: nn.Module, plan: TrainingPlan) -> torch.optim.AdamW:
    """Decay for the matrices of linear layers; none for biases, norms, and tables that are looked up."""
    kinds = (TokenEmbedding, Learnt, nn.Embedding)
    tables = {id(part.weight) for part in module.modules() if isinstance(part, kinds)}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    decayed = [one for one in parameters if one.dim() >= 2 and id(one) not in tables]
    plain = [one for one in parameters if one.dim() < 2 or id(one) in tables]
    groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=plan.betas, eps=1e-9, fused=True)

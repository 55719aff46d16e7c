import torch
from pytorch_adapt.hooks import ChainHook, TargetDiversityHook, TargetEntropyHook
from pytorch_adapt.hooks.optimizer import OptimizerHook


def race(task):
    classifier, task.network.linear = task.network.linear, torch.nn.Identity()
    models = {"G": task.network.train(), "C": classifier.train()}
    optimizers = [torch.optim.Adam([*models["G"].parameters(), *models["C"].parameters()], lr=1e-4)]
    hook = OptimizerHook(ChainHook(TargetEntropyHook(), TargetDiversityHook()), optimizers)
    for _ in range(task.epochs):
        for part in torch.randperm(len(task.tensors)).split(task.batch_size):
            hook({**models, "target_imgs": task.tensors[part], "target_domain": torch.ones(len(part))})
    model = torch.nn.Sequential(models["G"], models["C"]).eval()
    with torch.no_grad():
        return torch.cat([model(images) for images in task.tensors.split(task.batch_size)]).softmax(1)

"""
AnCon: source-free domain adaptation by self-training with anchored confidence.
"""

import argparse
import random
import shutil
import time
import warnings

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import utils
from tllib.self_training.ancon_loss import AnchoredConfidenceLoss
from tllib.self_training.mcc import ImageClassifier
from tllib.utils.data import ForeverDataIterator
from tllib.utils.logger import CompleteLogger
from tllib.utils.meter import AverageMeter, ProgressMeter
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, Subset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class IndexedDataset(Dataset):
    """Some images of a dataset, each with its number among them and without its label.

    Args:
        dataset (torch.utils.data.Dataset): items begin with an image
        positions (sequence): which items of the dataset
    """

    def __init__(self, dataset: Dataset, positions):
        self.dataset = dataset
        self.positions = positions

    def __getitem__(self, index: int):
        return self.dataset[self.positions[index]][0], index

    def __len__(self) -> int:
        return len(self.positions)


def main(args: argparse.Namespace):  # noqa: PLR0915 (a script, read from top to bottom as TLLib's)
    logger = CompleteLogger(args.log, args.phase)
    print(args)

    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
        warnings.warn("A seed makes CUDNN deterministic, which can slow down training considerably.", stacklevel=2)

    cudnn.benchmark = args.seed is None

    # Data loading code
    train_source_transform = utils.get_train_transform(
        args.train_resizing,
        random_horizontal_flip=not args.no_hflip,
        resize_size=args.resize_size,
        norm_mean=args.norm_mean,
        norm_std=args.norm_std,
    )
    train_target_transform = utils.get_train_transform(
        args.train_resizing,
        scale=args.scale,
        ratio=args.ratio,
        random_horizontal_flip=not args.no_hflip,
        resize_size=args.resize_size,
        norm_mean=args.norm_mean,
        norm_std=args.norm_std,
    )
    val_transform = utils.get_val_transform(
        args.val_resizing, resize_size=args.resize_size, norm_mean=args.norm_mean, norm_std=args.norm_std
    )
    print("train_source_transform: ", train_source_transform)
    print("train_target_transform: ", train_target_transform)
    print("val_transform: ", val_transform)

    train_source_dataset, train_target_dataset, val_dataset, test_dataset, num_classes, args.class_names = (
        utils.get_dataset(
            args.data,
            args.root,
            args.source,
            args.target,
            train_source_transform,
            val_transform,
            train_target_transform=train_target_transform,
        )
    )
    # every tenth image of the target is held out, without its label, to choose the epoch by
    train_target_dataset = IndexedDataset(
        train_target_dataset, [i for i in range(len(train_target_dataset)) if i % 10 > 0]
    )
    hold_out_dataset = Subset(val_dataset, range(0, len(val_dataset), 10))

    train_source_loader = DataLoader(
        train_source_dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    train_target_loader = DataLoader(
        train_target_dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    hold_out_loader = DataLoader(hold_out_dataset, batch_size=args.batch_size, num_workers=args.workers)
    val_loader = DataLoader(val_dataset, batch_size=args.batch_size, shuffle=False, num_workers=args.workers)
    test_loader = DataLoader(test_dataset, batch_size=args.batch_size, shuffle=False, num_workers=args.workers)

    # create model
    print(f"=> using model '{args.arch}'")
    backbone = utils.get_model(args.arch, pretrain=not args.scratch)
    pool_layer = nn.Identity() if args.no_pool else None
    classifier = ImageClassifier(
        backbone, num_classes, bottleneck_dim=args.bottleneck_dim, pool_layer=pool_layer, finetune=not args.scratch
    ).to(device)

    if args.phase == "test":
        classifier.load_state_dict(torch.load(logger.get_checkpoint_path("best"), map_location="cpu"))
        acc1 = utils.validate(test_loader, classifier, args, device)
        print(acc1)
        return

    # source model: from another script of the same classifier, or trained here
    if args.pretrain is None:
        args.pretrain = logger.get_checkpoint_path("pretrain")
        pretrain(ForeverDataIterator(train_source_loader), classifier, args)
        torch.save(classifier.state_dict(), args.pretrain)
    classifier.load_state_dict(torch.load(args.pretrain, map_location="cpu"))

    # define optimizer and lr scheduler: the head stays that of the source
    classifier.head.requires_grad_(False)
    backbone_group, bottleneck_group, _ = classifier.get_parameters()
    optimizer = SGD(
        [backbone_group, bottleneck_group],
        args.lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        nesterov=True,
    )
    steps = args.epochs * len(train_target_loader)
    lr_scheduler = LambdaLR(optimizer, lambda x: args.lr * (1.0 + args.lr_gamma * x / steps) ** (-args.lr_decay))

    # define loss function
    ancon_loss = AnchoredConfidenceLoss(
        len(train_target_dataset), num_classes, smoothing=args.smoothing, beta=args.beta
    ).to(device)

    # start training
    print("source model:")
    utils.validate(val_loader, classifier, args, device)
    best_score = -float("inf")
    for epoch in range(args.epochs):
        print("lr:", lr_scheduler.get_last_lr())
        # train for one epoch
        train(train_target_loader, classifier, ancon_loss, optimizer, lr_scheduler, epoch, args)

        # evaluate on validation set; its labels are for the log alone
        utils.validate(val_loader, classifier, args, device)

        # remember the epoch of the highest InfoMax and save checkpoint
        score = info_max(hold_out_loader, classifier)
        print(f" * InfoMax {score:.4f}")
        torch.save(classifier.state_dict(), logger.get_checkpoint_path("latest"))
        if score > best_score:
            best_score = score
            shutil.copy(logger.get_checkpoint_path("latest"), logger.get_checkpoint_path("best"))

    # evaluate on test set
    classifier.load_state_dict(torch.load(logger.get_checkpoint_path("best")))
    acc1 = utils.validate(test_loader, classifier, args, device)
    print(f"test_acc1 = {acc1:3.1f}")

    logger.close()


def pretrain(train_source_iter: ForeverDataIterator, classifier: nn.Module, args: argparse.Namespace):
    """Train the classifier on the source domain."""
    optimizer = SGD(
        classifier.get_parameters(),
        args.pretrain_lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        nesterov=True,
    )
    lr_scheduler = LambdaLR(optimizer, lambda x: args.pretrain_lr * (1.0 + 0.001 * x) ** (-args.lr_decay))
    for epoch in range(args.pretrain_epochs):
        utils.empirical_risk_minimization(train_source_iter, classifier, optimizer, lr_scheduler, epoch, args, device)


def train(
    train_target_loader: DataLoader,
    model: nn.Module,
    ancon_loss: AnchoredConfidenceLoss,
    optimizer: SGD,
    lr_scheduler: LambdaLR,
    epoch: int,
    args: argparse.Namespace,
):
    """Train on each image of the target domain once."""
    batch_time = AverageMeter("Time", ":3.1f")
    data_time = AverageMeter("Data", ":3.1f")
    losses = AverageMeter("Loss", ":3.2f")
    thresholds = AverageMeter("Threshold", ":3.2f")
    progress = ProgressMeter(
        len(train_target_loader), [batch_time, data_time, losses, thresholds], prefix=f"Epoch: [{epoch}]"
    )

    # switch to train mode
    model.train()

    end = time.time()
    for i, (x_t, indices) in enumerate(train_target_loader):
        x_t = x_t.to(device)

        # measure data loading time
        data_time.update(time.time() - end)

        # compute output
        y_t, _ = model(x_t)
        loss = ancon_loss(y_t, indices)

        losses.update(loss.item(), x_t.size(0))
        thresholds.update(ancon_loss.threshold.item(), x_t.size(0))

        # compute gradient and do SGD step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lr_scheduler.step()

        # measure elapsed time
        batch_time.update(time.time() - end)
        end = time.time()

        if i % args.print_freq == 0:
            progress.display(i)


@torch.no_grad()
def info_max(loader: DataLoader, model: nn.Module) -> float:
    """Mutual information of images and predictions: entropy of the mean prediction less the mean entropy."""
    model.eval()
    p = torch.cat([F.softmax(model(batch[0].to(device)), dim=1) for batch in loader])
    mean_entropy = torch.special.entr(p).sum(dim=1).mean()
    return (torch.special.entr(p.mean(dim=0)).sum() - mean_entropy).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="AnCon for Source-Free Domain Adaptation")
    # dataset parameters
    parser.add_argument("root", metavar="DIR", help="root path of dataset")
    parser.add_argument(
        "-d",
        "--data",
        metavar="DATA",
        default="Office31",
        choices=utils.get_dataset_names(),
        help="dataset: " + " | ".join(utils.get_dataset_names()) + " (default: Office31)",
    )
    parser.add_argument("-s", "--source", nargs="+", help="source domain(s)")
    parser.add_argument("-t", "--target", nargs="+", help="target domain(s)")
    parser.add_argument("--train-resizing", type=str, default="default")
    parser.add_argument("--val-resizing", type=str, default="default")
    parser.add_argument("--resize-size", type=int, default=224, help="the image size after resizing")
    parser.add_argument(
        "--scale",
        type=float,
        nargs="+",
        default=[0.5, 1.0],
        metavar="PCT",
        help="random resize scale on the target (default: 0.5 1.0)",
    )
    parser.add_argument(
        "--ratio",
        type=float,
        nargs="+",
        default=[3.0 / 4.0, 4.0 / 3.0],
        metavar="RATIO",
        help="random resize aspect ratio on the target (default: 0.75 1.33)",
    )
    parser.add_argument("--no-hflip", action="store_true", help="no random horizontal flipping during training")
    parser.add_argument("--norm-mean", type=float, nargs="+", default=(0.485, 0.456, 0.406), help="normalization mean")
    parser.add_argument("--norm-std", type=float, nargs="+", default=(0.229, 0.224, 0.225), help="normalization std")
    # model parameters
    parser.add_argument(
        "-a",
        "--arch",
        metavar="ARCH",
        default="resnet18",
        choices=utils.get_model_names(),
        help="backbone architecture: " + " | ".join(utils.get_model_names()) + " (default: resnet18)",
    )
    parser.add_argument("--bottleneck-dim", default=256, type=int, help="dimension of bottleneck")
    parser.add_argument("--no-pool", action="store_true", help="no pool layer after the feature extractor")
    parser.add_argument("--scratch", action="store_true", help="whether train from scratch")
    parser.add_argument(
        "--pretrain",
        type=str,
        default=None,
        help="checkpoint of a source model, such as one of mcc.py or cdan.py (default: train one on the source first)",
    )
    parser.add_argument(
        "--smoothing", default=0.3, type=float, help="weight of the votes in the smoothed pseudo labels (default: 0.3)"
    )
    parser.add_argument(
        "--beta", default=0.9, type=float, help="decay of the moving average of the confidence (default: 0.9)"
    )
    # training parameters
    parser.add_argument("-b", "--batch-size", default=64, type=int, metavar="N", help="mini-batch size (default: 64)")
    parser.add_argument(
        "--lr",
        "--learning-rate",
        default=0.01,
        type=float,
        metavar="LR",
        dest="lr",
        help="initial learning rate of the adaptation",
    )
    parser.add_argument(
        "--lr-gamma", default=10.0, type=float, help="parameter for lr scheduler, over the whole adaptation"
    )
    parser.add_argument("--lr-decay", default=0.75, type=float, help="parameter for lr scheduler")
    parser.add_argument("--momentum", default=0.9, type=float, metavar="M", help="momentum")
    parser.add_argument(
        "--wd",
        "--weight-decay",
        default=1e-3,
        type=float,
        metavar="W",
        dest="weight_decay",
        help="weight decay (default: 1e-3)",
    )
    parser.add_argument(
        "-j", "--workers", default=2, type=int, metavar="N", help="number of data loading workers (default: 2)"
    )
    parser.add_argument(
        "--epochs", default=30, type=int, metavar="N", help="number of passes over the target (default: 30)"
    )
    parser.add_argument(
        "--pretrain-epochs", default=10, type=int, metavar="N", help="number of epochs on the source (default: 10)"
    )
    parser.add_argument(
        "--pretrain-lr",
        default=0.01,
        type=float,
        metavar="LR",
        help="initial learning rate on the source (default: 0.01)",
    )
    parser.add_argument(
        "-i", "--iters-per-epoch", default=500, type=int, help="number of iterations per epoch on the source"
    )
    parser.add_argument("-p", "--print-freq", default=100, type=int, metavar="N", help="print frequency (default: 100)")
    parser.add_argument("--seed", default=None, type=int, help="seed for initializing training")
    parser.add_argument(
        "--per-class-eval", action="store_true", help="whether output per-class accuracy during evaluation"
    )
    parser.add_argument("--log", type=str, default="ancon", help="where to save logs and checkpoints")
    parser.add_argument(
        "--phase",
        type=str,
        default="train",
        choices=["train", "test"],
        help="with 'test' the model of 'train' is only tested",
    )
    args = parser.parse_args()
    main(args)

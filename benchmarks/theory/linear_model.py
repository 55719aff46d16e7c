r"""Theorem 3.2 and its corollary as code: AnCon on the linear softmax model.

X is uniform on n points :math:`x_i \in \mathbb{R}^d` and labels follow :math:`p_{Y|X} = f(X; \theta^*)`, so
the minimiser and every expectation over X and Y are exact. Expectations over a minibatch ξ of b points drawn
with replacement are exact too, from per-sample gradients:
:math:`\mathbb{E}_\xi \langle \bar u_\xi, \bar v_\xi \rangle = \frac1b \mathbb{E}\langle u, v \rangle
+ (1 - \frac1b) \langle \mathbb{E} u, \mathbb{E} v \rangle`.

Only the optimisation itself is random. It runs R times side by side; tensors then have a leading R.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tllib_ancon.errors import UserError


@dataclass(frozen=True)
class LinearProblem:
    r"""Inputs and labels of the linear softmax model :math:`f_k(x; \theta) \propto \exp(\theta_k^\top x)`.

    Args:
        inputs: (n, d) float64, the points X is uniform on.
        optimum: (d, K) float64, :math:`\theta^*`: the labels' model, hence the minimiser of the loss.
    """

    inputs: Tensor
    optimum: Tensor

    def __post_init__(self) -> None:
        shapes = tuple(self.inputs.shape), tuple(self.optimum.shape)
        if self.inputs.ndim != 2 or self.optimum.ndim != 2 or shapes[0][1] != shapes[1][0]:
            raise UserError(f"inputs and optimum have shapes {shapes}; expected (n, d) and (d, K)")

    @property
    def num_classes(self) -> int:
        """K."""
        return self.optimum.shape[1]

    @cached_property
    def label_probabilities(self) -> Tensor:
        """p(Y | x) at every point, (n, K)."""
        return self.predict(self.optimum)

    @cached_property
    def radius(self) -> float:
        """C, the largest norm of an input."""
        return float(self.inputs.norm(dim=1).max())

    @cached_property
    def smoothness(self) -> float:
        r"""L: half the largest eigenvalue of :math:`\mathbb{E}[XX^\top]`; a softmax curves by 1/2 at most."""
        second_moment = self.inputs.T @ self.inputs / len(self.inputs)
        return float(torch.linalg.eigvalsh(second_moment)[-1]) / 2

    def expected_smoothness(self, batch_size: int) -> float:
        r""":math:`\mathcal{L} = C^2 / (2b) + (1 - 1/b) L`: per-sample losses are convex and C²/2-smooth."""
        return self.radius**2 / (2 * batch_size) + (1 - 1 / batch_size) * self.smoothness

    def largest_learning_rate(self, batch_size: int, pl_constant: float) -> float:
        r"""The theorem's largest step :math:`\gamma = \mu / (4 \mathcal{L} L)`."""
        return pl_constant / (4 * self.expected_smoothness(batch_size) * self.smoothness)

    def predict(self, parameters: Tensor) -> Tensor:
        """f(x; θ) at every point, (…, n, K) for parameters (…, d, K)."""
        return (self.inputs @ parameters).softmax(dim=-1)

    def gap(self, parameters: Tensor) -> Tensor:
        r"""Optimality gap :math:`l(\theta) - l(\theta^*)`, (…): the mean divergence from p(Y | x)."""
        log_ratio = self.label_probabilities.log() - (self.inputs @ parameters).log_softmax(dim=-1)
        return (self.label_probabilities * log_ratio).sum(dim=-1).mean(dim=-1)

    def mean_gradient(self, residuals: Tensor) -> Tensor:
        """E[X rᵀ], (…, d, K): the gradient of a cross-entropy with prediction minus target r, (…, n, K)."""
        return self.inputs.T @ residuals / len(self.inputs)

    def pl_constant(self, parameters: Tensor) -> Tensor:
        r"""The largest μ with :math:`\lVert \nabla l \rVert^2 \ge 2 \mu (l - l^*)` at each θ, (…).

        No μ > 0 serves all of them: the gradient is bounded while the loss is not (see the findings).
        """
        gradient = self.mean_gradient(self.predict(parameters) - self.label_probabilities)
        return gradient.square().sum(dim=(-2, -1)) / (2 * self.gap(parameters))

    def pseudo_labels(self, parameters: Tensor) -> Tensor:
        """One-hot Ŷ(x; θ) at every point, (…, n, K)."""
        return one_hot(self.predict(parameters).argmax(dim=-1), self.num_classes)

    def error(self, parameters: Tensor) -> Tensor:
        r"""Pseudo-labels' error :math:`g^{\mathcal{E}}(\theta) = p(\hat Y(X; \theta) \ne Y)`, (…)."""
        hits = (self.pseudo_labels(parameters) * self.label_probabilities).sum(dim=-1)
        return 1 - hits.mean(dim=-1)

    def minibatch_inner_product(self, first: Tensor, second: Tensor, batch_size: int) -> Tensor:
        r"""Exact :math:`\mathbb{E}_\xi \langle \bar u_\xi, \bar v_\xi \rangle` of two gradients, (…).

        Args:
            batch_size (int): b, drawn with replacement.

        Shape: first, second (…, n, K), the residuals r of per-sample gradients :math:`x r^\top`.
        """
        within = (self.inputs.square().sum(dim=1) * (first * second).sum(dim=-1)).mean(dim=-1)
        across = (self.mean_gradient(first) * self.mean_gradient(second)).sum(dim=(-2, -1))
        return within / batch_size + (1 - 1 / batch_size) * across


def random_problem(
    num_points: int, dimension: int, num_classes: int, generator: torch.Generator, scale: float = 3.0
) -> LinearProblem:
    """Inputs uniform on the unit sphere, so C = 1, and θ* normal with standard deviation ``scale``."""
    inputs = torch.randn(num_points, dimension, generator=generator, dtype=torch.float64)
    optimum = torch.randn(dimension, num_classes, generator=generator, dtype=torch.float64)
    return LinearProblem(inputs / inputs.norm(dim=1, keepdim=True), scale * optimum)


@dataclass(frozen=True)
class Neighborhood:
    r"""What decides the neighborhood size N of Theorem 3.2 after one ensemble update.

    .. math:: N(\lambda) = \lambda^2 \lVert \hat g \rVert^2
        + \frac{L\gamma}{2} \mathbb{E}_\xi \lVert \nabla \tilde l_\xi(\theta^*) - \lambda \hat g_\xi \rVert^2

    Args:
        step: :math:`L \gamma`.
        noise: :math:`\sigma_*^2 = \mathbb{E}_\xi \lVert \nabla \tilde l_\xi(\theta^*) \rVert^2`, (…).
        teacher_noise: :math:`\sigma^2 = \mathbb{E}_\xi \lVert \hat g_\xi \rVert^2`, (…).
        teacher_bias: :math:`\lVert \hat g \rVert^2`, (…).
        alignment: :math:`\mathbb{E}_\xi \langle \nabla \tilde l_\xi(\theta^*), \hat g_\xi \rangle`, (…).
    """

    step: float
    noise: Tensor
    teacher_noise: Tensor
    teacher_bias: Tensor
    alignment: Tensor

    def size(self, smoothing: Tensor | float) -> Tensor:
        r""":math:`N(\lambda)` for λ = ``smoothing``, (…); N(0) is that of self-training."""
        spread = self.noise - 2 * smoothing * self.alignment + smoothing**2 * self.teacher_noise
        return smoothing**2 * self.teacher_bias + self.step / 2 * spread

    @property
    def optimal_smoothing(self) -> Tensor:
        r""":math:`\lambda^\dagger`, the minimiser of N (Lemma B.6), (…); any real number.

        Where the ensemble equals the pseudo-labels, N does not depend on λ and this is 0.
        """
        curvature = self.teacher_noise + 2 / self.step * self.teacher_bias
        return torch.where(curvature > 0, self.alignment / curvature, 0.0)

    @property
    def ratio(self) -> Tensor:
        r""":math:`N(\lambda^\dagger) / N(0)`, (…), in [0, 1]."""
        return self.size(self.optimal_smoothing) / self.size(0.0)

    def ratio_bound(self, divergence: Tensor, teacher_bias_bound: Tensor) -> Tensor:
        r"""Upper bound of :attr:`ratio` for a non-negative alignment (Eq. 8), (…).

        .. math:: \min\bigl(1, 2 \min(1, D / (\sigma_* \sigma)) + 2 B / (L \gamma \sigma^2)\bigr)

        Args:
            divergence: D, of :func:`teacher_divergence`; f̄ must be normalised.
            teacher_bias_bound: B, an upper bound of :math:`\lVert \hat g \rVert^2`. The paper takes
                :func:`printed_teacher_bias`, which is none; :attr:`teacher_bias` itself makes the bound hold.
        """
        first = (divergence / (self.noise * self.teacher_noise).sqrt()).clamp(max=1)
        return (2 * first + 2 * teacher_bias_bound / (self.step * self.teacher_noise)).clamp(max=1)


def neighborhood(
    problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor, batch_size: int, learning_rate: float
) -> Neighborhood:
    r"""The terms of :math:`N(\lambda)` for these pseudo-labels Ŷ and this ensemble f̄, exactly.

    Shape: pseudo_labels, ensemble (…, n, K) float64.
    """

    def inner_product(first: Tensor, second: Tensor) -> Tensor:
        return problem.minibatch_inner_product(first, second, batch_size)

    student, teacher = problem.label_probabilities - pseudo_labels, ensemble - pseudo_labels
    return Neighborhood(
        step=problem.smoothness * learning_rate,
        noise=inner_product(student, student),
        teacher_noise=inner_product(teacher, teacher),
        teacher_bias=problem.mean_gradient(teacher).square().sum(dim=(-2, -1)),
        alignment=inner_product(student, teacher),
    )


def teacher_divergence(problem: LinearProblem, ensemble: Tensor) -> Tensor:
    r""":math:`C^2 g^{KL} = C^2 \mathbb{E}_X D_{KL}(f(X; \theta^*) \| \bar f(X))`, (…).

    It is infinite as soon as one class of one point has no vote.
    """
    target = problem.label_probabilities
    return problem.radius**2 * (target * (target.log() - ensemble.log())).sum(dim=-1).mean(dim=-1)


def printed_teacher_bias(problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor) -> Tensor:
    r""":math:`C^2 g^C = C^2 \lVert \mathbb{E}_X \bar f(X) - \mathbb{E}_X \hat Y(X) \rVert^2`, (…).

    The proof bounds :math:`\lVert \hat g \rVert^2 = \lVert \mathbb{E}[X (\bar f - \hat Y)^\top] \rVert^2` by
    it. That is not so: two marginals may agree where their products with X do not.
    """
    difference = (ensemble - pseudo_labels).mean(dim=-2)
    return problem.radius**2 * difference.square().sum(dim=-1)


@dataclass(frozen=True)
class Setting:
    """How the three steps of the theory are run.

    Args:
        outer_steps: T̂, updates of the ensemble and the pseudo-labels.
        inner_steps: T, gradient steps between two of them.
        batch_size: b.
        learning_rate: γ.
        runs: R, side by side, from the same start.
        beta: decay of the confidence's moving average δ.
    """

    outer_steps: int
    inner_steps: int
    batch_size: int
    learning_rate: float
    runs: int
    beta: float = 0.9


@dataclass(frozen=True)
class Trajectory:
    """What the three steps of the theory went through.

    Args:
        gaps: (T̂ + 1, R) optimality gap before every outer step and at the end.
        errors: (T̂, R) error rate of the pseudo-labels.
        smoothing: (T̂, R) λ used.
        sizes: (T̂, R) N(λ) at that λ.
        pl_constant: the largest μ that holds at every iterate of every run.
    """

    gaps: Tensor
    errors: Tensor
    smoothing: Tensor
    sizes: Tensor
    pl_constant: float


def optimal_smoothing(neighborhood: Neighborhood) -> Tensor:
    """AnCon as the theorem has it: λ†, which needs the labels."""
    return neighborhood.optimal_smoothing


def no_smoothing(neighborhood: Neighborhood) -> Tensor:
    """Self-training: λ = 0."""
    return torch.zeros_like(neighborhood.alignment)


def adapt(
    problem: LinearProblem,
    start: Tensor,
    setting: Setting,
    generator: torch.Generator,
    choose_smoothing: Callable[[Neighborhood], Tensor] = optimal_smoothing,
) -> Trajectory:
    r"""Runs the theory's three steps: ensemble update, T steps of stochastic gradient descent, and again.

    The ensemble is that of Eq. 2–3: uniform over the confident hard predictions of a point. A point without
    one has no ensemble; its pseudo-label stands in, which leaves it unsmoothed.

    Args:
        start: (d, K), :math:`\theta_0`.
        generator: of the minibatches.
        choose_smoothing: λ from the neighborhood of each outer step. Default: λ†.
    """
    parameters = start.expand(setting.runs, -1, -1)
    votes = torch.zeros(setting.runs, len(problem.inputs), problem.num_classes, dtype=torch.float64)
    threshold = torch.zeros(setting.runs, 1, dtype=torch.float64)
    gaps, errors, smoothings, sizes, pl_constants = [problem.gap(parameters)], [], [], [], []
    for _ in range(setting.outer_steps):
        confidence = problem.predict(parameters).amax(dim=-1)
        threshold = setting.beta * threshold + (1 - setting.beta) * confidence.mean(dim=-1, keepdim=True)
        pseudo_labels = problem.pseudo_labels(parameters)
        votes = votes + pseudo_labels * (confidence > threshold)[..., None]
        num_votes = votes.sum(dim=-1, keepdim=True)
        ensemble = torch.where(num_votes > 0, votes / num_votes, pseudo_labels)

        terms = neighborhood(problem, pseudo_labels, ensemble, setting.batch_size, setting.learning_rate)
        smoothing = choose_smoothing(terms)
        errors.append(problem.error(parameters))
        smoothings.append(smoothing)
        sizes.append(terms.size(smoothing))
        targets = torch.lerp(pseudo_labels, ensemble, smoothing[:, None, None])
        for _ in range(setting.inner_steps):
            pl_constants.append(problem.pl_constant(parameters).min())
            parameters = _descend(problem, parameters, targets, setting, generator)
        gaps.append(problem.gap(parameters))
    pl_constants.append(problem.pl_constant(parameters).min())
    return Trajectory(
        gaps=torch.stack(gaps),
        errors=torch.stack(errors),
        smoothing=torch.stack(smoothings),
        sizes=torch.stack(sizes),
        pl_constant=float(torch.stack(pl_constants).min()),
    )


def step_bounds(problem: LinearProblem, setting: Setting, trajectory: Trajectory, pl_constant: float) -> Tensor:
    r"""Theorem 3.2's upper bound (Eq. 7) of the gap after every outer step, from the gap before it.

    .. math:: \rho^T (l(\theta_m) - l^*) + \frac{8C^2}{\mu} g^{\mathcal{E}}(\theta_m) + \frac2\mu N(\lambda_m),
        \quad \rho = 1 - \mu\gamma

    The terms depend on the run, so the bound is their mean over runs.

    Args:
        pl_constant: μ, at most that of the trajectory, and at least :math:`4 \mathcal{L} L \gamma`.

    Shape: (T̂,) float64, in nats.

    Raises:
        UserError: if μ does not hold along the trajectory or the learning rate is too large for it.
    """
    _check_constants(problem, setting, trajectory, pl_constant)
    shrink = (1 - pl_constant * setting.learning_rate) ** setting.inner_steps
    return shrink * trajectory.gaps[:-1].mean(dim=1) + _increments(problem, trajectory, pl_constant)


def corollary_bound(problem: LinearProblem, setting: Setting, trajectory: Trajectory, pl_constant: float) -> Tensor:
    r"""Corollary 3.2.1's upper bound (Eq. 9) of :math:`\mathbb{E}[l(\theta_{m}) - l^*]` for m = 1, …, T̂.

    .. math:: \rho^{T(m-1)} (l(\theta_0) - l^*) + \sum_{i<m} \rho^{T(m-1-i)}
        \Bigl(\frac{8C^2}{\mu} g^{\mathcal{E}}(\theta_i) + \frac2\mu N(\lambda_i)\Bigr)

    The first exponent is the printed one; the recursion of :func:`step_bounds` gives :math:`Tm`, a smaller bound.

    Args, Shape and Raises: those of :func:`step_bounds`.
    """
    _check_constants(problem, setting, trajectory, pl_constant)
    shrink = (1 - pl_constant * setting.learning_rate) ** setting.inner_steps
    start, accumulated, bounds = trajectory.gaps[0].mean(), torch.zeros((), dtype=torch.float64), []
    for m, increment in enumerate(_increments(problem, trajectory, pl_constant)):
        accumulated = shrink * accumulated + increment
        bounds.append(shrink**m * start + accumulated)
    return torch.stack(bounds)


def _increments(problem: LinearProblem, trajectory: Trajectory, pl_constant: float) -> Tensor:
    bias = 8 * problem.radius**2 / pl_constant * trajectory.errors.mean(dim=1)
    return bias + 2 / pl_constant * trajectory.sizes.mean(dim=1)


def _check_constants(problem: LinearProblem, setting: Setting, trajectory: Trajectory, pl_constant: float) -> None:
    if pl_constant > trajectory.pl_constant:
        held = trajectory.pl_constant
        raise UserError(f"μ = {pl_constant:g} does not hold along this trajectory; at most {held:g} does")
    largest = problem.largest_learning_rate(setting.batch_size, pl_constant)
    if setting.learning_rate > largest * (1 + 1e-12):
        raise UserError(f"learning rate {setting.learning_rate:g}: the theorem needs at most {largest:g}")


def one_hot(classes: Tensor, num_classes: int) -> Tensor:
    """One-hot vectors in float64."""
    return torch.nn.functional.one_hot(classes, num_classes).double()


def _descend(
    problem: LinearProblem, parameters: Tensor, targets: Tensor, setting: Setting, generator: torch.Generator
) -> Tensor:
    """One step of stochastic gradient descent in each run, on its own minibatch drawn with replacement."""
    chosen = torch.randint(len(problem.inputs), (setting.runs, setting.batch_size), generator=generator)
    inputs = problem.inputs[chosen]
    chosen_targets = targets.gather(1, chosen[..., None].expand(-1, -1, problem.num_classes))
    residuals = (inputs @ parameters).softmax(dim=-1) - chosen_targets
    return parameters - setting.learning_rate / setting.batch_size * inputs.transpose(1, 2) @ residuals

r"""Theorem 3.2 and its corollary as code: AnCon on the linear softmax model :math:`f_k(x; \theta) \propto
\exp(\theta_k^\top x)`.

X is uniform on n points :math:`x_i \in \mathbb{R}^d` and labels follow :math:`p_{Y|X} = f(X; \theta^*)`, so
the minimiser and every expectation over X and Y are exact. Expectations over a minibatch ξ of b points drawn
with replacement are exact too, from per-sample gradients:
:math:`\mathbb{E}_\xi \langle \bar u_\xi, \bar v_\xi \rangle = \frac1b \mathbb{E}\langle u, v \rangle
+ (1 - \frac1b) \langle \mathbb{E} u, \mathbb{E} v \rangle`.

Only the optimisation itself is random. It runs R times side by side; tensors then have a leading R. All are float64;
"residuals" are the r of per-sample gradients :math:`x r^\top`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class LinearProblem:
    r"""Inputs (n, d), the points X is uniform on, and the optimum :math:`\theta^*` (d, K), the labels' model."""

    inputs: Tensor
    optimum: Tensor

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
        r"""The largest μ with :math:`\lVert \nabla l \rVert^2 \ge 2 \mu (l - l^*)` at each θ, (…)."""
        gradient = self.mean_gradient(self.predict(parameters) - self.label_probabilities)
        return gradient.square().sum(dim=(-2, -1)) / (2 * self.gap(parameters))

    def pseudo_labels(self, parameters: Tensor) -> Tensor:
        """One-hot Ŷ(x; θ) at every point, (…, n, K)."""
        return one_hot(self.predict(parameters).argmax(dim=-1), self.num_classes)

    def error(self, parameters: Tensor) -> Tensor:
        r"""Pseudo-labels' error :math:`g^{\mathcal{E}}(\theta) = p(\hat Y(X; \theta) \ne Y)`, (…)."""
        return 1 - (self.pseudo_labels(parameters) * self.label_probabilities).sum(dim=-1).mean(dim=-1)

    def minibatch_inner_product(self, first: Tensor, second: Tensor, batch_size: int) -> Tensor:
        r"""Exact :math:`\mathbb{E}_\xi \langle \bar u_\xi, \bar v_\xi \rangle` of residuals (…, n, K), (…)."""
        within = (self.inputs.square().sum(dim=1) * (first * second).sum(dim=-1)).mean(dim=-1)
        across = (self.mean_gradient(first) * self.mean_gradient(second)).sum(dim=(-2, -1))
        return within / batch_size + (1 - 1 / batch_size) * across


def one_hot(classes: Tensor, num_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(classes, num_classes).double()


def random_problem(
    num_points: int, dimension: int, num_classes: int, generator: Generator, scale: float = 3.0
) -> LinearProblem:
    """Inputs uniform on the unit sphere, so C = 1, and θ* normal with standard deviation ``scale``."""
    inputs = torch.randn(num_points, dimension, generator=generator, dtype=torch.float64)
    optimum = torch.randn(dimension, num_classes, generator=generator, dtype=torch.float64)
    return LinearProblem(inputs / inputs.norm(dim=1, keepdim=True), scale * optimum)


def draw(generator: Generator, spread: float = 1.0) -> tuple[LinearProblem, Tensor, Tensor]:
    """A random problem, pseudo-labels of parameters off its optimum, and a soft ensemble around p(Y|x)."""
    problem = random_problem(16, 3, 4, generator)
    shift = 2 * torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(problem.label_probabilities.shape, generator=generator, dtype=torch.float64)
    ensemble = (problem.label_probabilities.log() + spread * noise).softmax(dim=1)
    return problem, problem.pseudo_labels(problem.optimum + shift), ensemble


@dataclass(frozen=True)
class Neighborhood:
    r"""What decides the neighborhood size N of Theorem 3.2 after one ensemble update.

    .. math:: N(\lambda) = \lambda^2 \lVert \hat g \rVert^2
        + \frac{L\gamma}{2} \mathbb{E}_\xi \lVert \nabla \tilde l_\xi(\theta^*) - \lambda \hat g_\xi \rVert^2

    Attributes, all but the first (…):
        step: :math:`L \gamma`
        noise: :math:`\sigma_*^2 = \mathbb{E}_\xi \lVert \nabla \tilde l_\xi(\theta^*) \rVert^2`
        teacher_noise: :math:`\sigma^2 = \mathbb{E}_\xi \lVert \hat g_\xi \rVert^2`
        teacher_bias: :math:`\lVert \hat g \rVert^2`
        alignment: :math:`\mathbb{E}_\xi \langle \nabla \tilde l_\xi(\theta^*), \hat g_\xi \rangle`
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
        r"""Upper bound of :attr:`ratio` for a non-negative alignment and a normalised f̄ (Eq. 8), (…).

        .. math:: \min\bigl(1, 2 \min(1, D / (\sigma_* \sigma)) + 2 B / (L \gamma \sigma^2)\bigr)

        Args:
            divergence: D, of :func:`teacher_divergence`
            teacher_bias_bound: B, an upper bound of :math:`\lVert \hat g \rVert^2`. The paper takes
                :func:`printed_teacher_bias`, which is none; :attr:`teacher_bias` itself makes the bound hold.
        """
        first = (divergence / (self.noise * self.teacher_noise).sqrt()).clamp(max=1)
        return (2 * first + 2 * teacher_bias_bound / (self.step * self.teacher_noise)).clamp(max=1)


def neighborhood(
    problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor, batch_size: int, learning_rate: float
) -> Neighborhood:
    r"""The terms of :math:`N(\lambda)` for pseudo-labels Ŷ and an ensemble f̄, both (…, n, K), exactly."""

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
    """How the three steps of the theory are run: T̂ updates of ensemble and pseudo-labels, T gradient steps between two
    of them, b, γ, R runs from the same start, and β, the decay of the confidence's moving average δ."""

    outer_steps: int
    inner_steps: int
    batch_size: int
    learning_rate: float
    runs: int
    beta: float = 0.9


@dataclass(frozen=True)
class Run:
    r"""What the three steps of the theory went through, and upper bounds of its gaps by a μ that holds along it and is
    at least :math:`4 \mathcal{L} L \gamma`; the bounds' terms depend on the run and are means over R.

    Attributes:
        gaps: (T̂ + 1, R) optimality gap before every outer step and at the end
        errors: (T̂, R) error rate of the pseudo-labels
        smoothing: (T̂, R) λ used
        sizes: (T̂, R) N(λ) at that λ
        pl_constant: the largest μ that holds at every iterate
    """

    problem: LinearProblem
    setting: Setting
    gaps: Tensor
    errors: Tensor
    smoothing: Tensor
    sizes: Tensor
    pl_constant: float

    def shrink(self, mu: float) -> float:
        r""":math:`\rho^T` with :math:`\rho = 1 - \mu\gamma`."""
        assert mu <= self.pl_constant
        return (1 - mu * self.setting.learning_rate) ** self.setting.inner_steps

    def increments(self, mu: float) -> Tensor:
        r""":math:`\frac{8C^2}{\mu} g^{\mathcal{E}}(\theta_m) + \frac2\mu N(\lambda_m)`, (T̂,)."""
        return 8 * self.problem.radius**2 / mu * self.errors.mean(dim=1) + 2 / mu * self.sizes.mean(dim=1)

    def step_bounds(self, mu: float) -> Tensor:
        """Theorem 3.2's bound (Eq. 7) of the gap after every outer step, from the gap before it, (T̂,)."""
        return self.shrink(mu) * self.gaps[:-1].mean(dim=1) + self.increments(mu)

    def corollary_bounds(self, mu: float) -> Tensor:
        r"""Corollary 3.2.1's bound (Eq. 9) of :math:`\mathbb{E}[l(\theta_{m}) - l^*]` for m = 1, …, T̂.

        .. math:: \rho^{T(m-1)} (l(\theta_0) - l^*) + \sum_{i<m} \rho^{T(m-1-i)}
            \Bigl(\frac{8C^2}{\mu} g^{\mathcal{E}}(\theta_i) + \frac2\mu N(\lambda_i)\Bigr)

        The first exponent is the printed one; the recursion of :meth:`step_bounds` gives :math:`Tm`, a smaller bound.
        """
        shrink, accumulated, bounds = self.shrink(mu), torch.zeros((), dtype=torch.float64), []
        for m, increment in enumerate(self.increments(mu)):
            accumulated = shrink * accumulated + increment
            bounds.append(shrink**m * self.gaps[0].mean() + accumulated)
        return torch.stack(bounds)


def optimal_smoothing(neighborhood: Neighborhood) -> Tensor:
    """AnCon as the theorem has it: λ†, which needs the labels."""
    return neighborhood.optimal_smoothing


def adapt(
    problem: LinearProblem,
    start: Tensor,
    setting: Setting,
    generator: Generator,
    choose_smoothing: Callable[[Neighborhood], Tensor] = optimal_smoothing,
) -> Run:
    r"""The theory's three steps from :math:`\theta_0` (d, K): ensemble update, T steps of stochastic gradient descent,
    and again.

    The ensemble is that of Eq. 2–3: uniform over the confident hard predictions of a point. A point without
    one has no ensemble; its pseudo-label stands in, which leaves it unsmoothed.
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
    series = (torch.stack(values) for values in (gaps, errors, smoothings, sizes))
    return Run(problem, setting, *series, pl_constant=float(torch.stack(pl_constants).min()))


def _descend(
    problem: LinearProblem, parameters: Tensor, targets: Tensor, setting: Setting, generator: Generator
) -> Tensor:
    """One step of stochastic gradient descent in each run, on its own minibatch drawn with replacement."""
    chosen = torch.randint(len(problem.inputs), (setting.runs, setting.batch_size), generator=generator)
    inputs = problem.inputs[chosen]
    chosen_targets = targets.gather(1, chosen[..., None].expand(-1, -1, problem.num_classes))
    residuals = (inputs @ parameters).softmax(dim=-1) - chosen_targets
    return parameters - setting.learning_rate / setting.batch_size * inputs.transpose(1, 2) @ residuals

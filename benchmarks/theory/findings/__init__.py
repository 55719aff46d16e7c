"""Which printed statements of the paper hold numerically, each with numbers that can be reproduced.

Every statement is put to a test of its own, on random problems drawn from one generator or on the smallest
example that decides it; ``benchmarks/results/theory.md`` has the numbers. In short:

- Theorem 3.1 holds for independent, unequally accurate votes, and ξ is what the Chernoff bound gives. Its reading
  does not: a few good votes can be spoilt by poorer ones, and p̄ → 1/2 leaves errors however many votes there are.
- λ† minimises N(λ) and N(λ†) ≤ N(0), as printed. λ† is any real number.
- The upper bound of N(λ†)/N(0), Eq. 8, fails: its last step is wrong. With ‖ĝ‖² in place of C² g^C it holds.
- Theorem 3.2 and its corollary hold along runs, where some μ holds; no μ holds at every θ. They are near what
  happens only where all pseudo-labels are right, and there AnCon is self-training.
- The first exponent of the corollary is T(T̂−1) where the recursion gives T·T̂: valid, looser.
- The identity g_ξ = ∇l̃_ξ − λ ĝ_ξ and Pinsker's inequality need a normalised f̄, which the implementation has not.
- The printed ECE drops its first bin; the printed Corr-C is a matrix; the printed Ent prefers collapse.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator

from benchmarks.theory.findings import adaptation, ensemble, measures, smoothing
from benchmarks.theory.findings.finding import Finding, page

__all__ = ["TESTS", "Finding", "findings", "page"]

TESTS: tuple[Callable[[Generator], Finding], ...] = (
    ensemble.rate_is_chernoff,
    ensemble.ensemble_error,
    ensemble.more_votes_fewer_errors,
    ensemble.correct_in_the_limit,
    ensemble.dependent_votes,
    ensemble.votes_maximise_likelihood,
    smoothing.optimal_smoothing_minimises,
    smoothing.optimal_smoothing_is_a_weight,
    smoothing.alignment_means_a_good_teacher,
    smoothing.printed_ratio_bound,
    smoothing.corrected_ratio_bound,
    smoothing.weights_and_the_marginal,
    smoothing.informative_with_hard_votes,
    smoothing.pinsker,
    smoothing.pinsker_with_counts,
    smoothing.gradient_of_the_smoothed_label,
    smoothing.gradient_with_counts,
    smoothing.votes_as_a_per_sample_weight,
    adaptation.pl_condition,
    adaptation.optimality_gap,
    adaptation.exponent_of_the_corollary,
    adaptation.bias_of_the_pseudo_label,
    adaptation.better_than_self_training,
    measures.calibration_bins,
    measures.entropy_criterion,
)


def findings(generator: Generator) -> list[Finding]:
    """Puts every statement to its test.

    Args:
        generator (torch.Generator): of all random problems; the same seed gives the same numbers.

    Outputs: one finding per statement, in the paper's order.
    """
    return [test(generator) for test in TESTS]

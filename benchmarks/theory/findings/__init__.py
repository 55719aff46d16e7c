"""Which printed statements of the paper hold numerically, each with numbers that can be reproduced.

Every statement is put to a test of its own, on random problems drawn from one generator or on the smallest
example that decides it. In short, with the numbers of ``torch.Generator().manual_seed(0)``:

- Theorem 3.1 holds for independent, unequally accurate votes (over 100 random lists the exact error is at
  most 0.56 of the bound), and ξ is what the Chernoff bound gives. Its reading does not: votes of 90, 55 and
  55 % err at 0.252, the first alone at 0.1; p̄ = 1/2 + 1/Q leaves an error of 0.475 at Q = 1001; E log f̄_Y
  tends to log p̄, not to its maximum.
- λ† minimises N(λ) and N(λ†) ≤ N(0), as printed. λ† is any real number: 221 close to Ŷ, −0.06 at a wrong
  vote.
- The upper bound of N(λ†)/N(0), Eq. 8, fails: 0 against a ratio of 0.976 for two mirrored points. Its last
  step is wrong (C² g^C is below ‖ĝ‖² in 66 of 100 random problems); with ‖ĝ‖² it holds. With hard votes
  g^KL is infinite, and the bound 1, as soon as a class of a point has no vote.
- The identity g_ξ = ∇l̃_ξ − λ ĝ_ξ and Pinsker's inequality need a normalised f̄, which the implementation
  has not.
- Theorem 3.2 and its corollary hold along runs, where some μ holds; no μ holds at every θ. They say little:
  their second term is at least 16 times the error rate of the pseudo-labels, against a loss of log K for a
  guess.
- The first exponent of the corollary is T(T̂−1) where the recursion gives T·T̂: valid, looser.
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
    smoothing.informative_with_hard_votes,
    smoothing.pinsker_with_counts,
    smoothing.gradient_of_the_smoothed_label,
    smoothing.votes_as_a_per_sample_weight,
    adaptation.pl_condition,
    adaptation.optimality_gap,
    adaptation.exponent_of_the_corollary,
    adaptation.bias_of_the_pseudo_label,
    adaptation.better_than_self_training,
    measures.calibration_bins,
    measures.correlation_criterion,
)


def findings(generator: Generator) -> list[Finding]:
    """Puts every statement to its test.

    Args:
        generator (torch.Generator): of all random problems; the same seed gives the same numbers.

    Outputs: one finding per statement, in the paper's order.
    """
    return [test(generator) for test in TESTS]

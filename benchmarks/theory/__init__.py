"""The paper's theory put to the test; ``python -m benchmarks.theory`` writes ``benchmarks/results/theory.md``.

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

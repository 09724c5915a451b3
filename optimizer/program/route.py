"""Turns demand and replicas into the routing split with the least peak utilisation, or into the cut that shows a lack.

For one workload and period, with effective replicas E_c, the least peak utilisation is the linear program

    minimise theta   s.t.   sum_c x_cb = lambda_b,   sum_b x_cb / kappa_cb <= theta E_c,   x >= 0

and by duality its value is the largest  sum_b lambda_b pi_b  with  pi_b <= mu_c / kappa_cb  and  sum_c mu_c E_c <= 1.
So every mu >= 0 gives an inequality that all fleets able to serve the demand within utilisation rho satisfy:

    rho sum_c mu_c E_c  >=  sum_b lambda_b min_c mu_c / kappa_cb

The flows x thus need no place in the integer program: the inequalities that matter are added as they are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from optimizer.program.linear import LinearProgram
from optimizer.program.problem import ProgramCandidate, ProgramWorkload, SolverOptions
from optimizer.program.solver import Session
from providers.errors import SolverError

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]

TOLERANCE = 1e-6
"""Relative excess of utilisation that is the solver's arithmetic and not a lack of capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a workload's candidates take: `share[c, b]` = 1 / kappa_cb, inf for a shape that c cannot serve."""

    candidates: tuple[str, ...]
    shapes: tuple[str, ...]
    share: Vector

    @staticmethod
    def of(workload: ProgramWorkload, candidates: Sequence[ProgramCandidate]) -> "Service":
        share = np.array(
            [
                [1 / rate if (rate := candidate.requests_per_s.get(shape)) else inf for shape in workload.shapes]
                for candidate in candidates
            ],
            dtype=np.float64,
        ).reshape(len(candidates), len(workload.shapes))
        names = tuple(candidate.id for candidate in candidates)
        return Service(candidates=names, shapes=tuple(workload.shapes), share=share)

    def pace(self) -> Vector | None:
        """How fast each candidate is next to the fastest, if that does not depend on the shape; else None.

        One cut with these weights then says all: there is nothing to route. A candidate that serves nothing weighs 0.
        """
        serving = np.isfinite(self.share).any(axis=1)
        if not serving.any() or not _same_pace(self.share[serving]):
            return None
        return _scaled(1 / self.share[:, 0])

    def alone(self, index: int) -> Vector:
        """Weights of the cut that counts in replicas of one candidate: max_b kappa_cb / kappa_ib for all c."""
        mine = np.isfinite(self.share[index])
        return _scaled((self.share[index, mine] / self.share[:, mine]).max(axis=1, initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Peak utilisation (inf: a shape cannot be served), flows[c, b], and the weights mu of the cut that proves it."""

    theta: float
    flows: Vector
    weights: Vector


def cut_value(service: Service, weights: Vector, demand: Vector) -> Vector:
    """Right-hand sides sum_b lambda_b min_c mu_c / kappa_cb for rows of demand; shapes without demand count 0."""
    return demand @ _values(service, weights)


def _values(service: Service, weights: Vector) -> Vector:
    """pi_b = min_c mu_c / kappa_cb; 0 for a shape that nobody serves."""
    with np.errstate(invalid="ignore"):
        products = np.where(np.isfinite(service.share), weights[:, None] * service.share, inf)
    values = products.min(axis=0)
    return np.where(np.isfinite(values), values, 0.0)


def route(service: Service, demand: Vector, replicas: Vector, options: SolverOptions) -> Routing:
    """The best split of `demand` (requests/s per shape) over `replicas` (effective, per candidate)."""
    flows = np.zeros_like(service.share)
    used = np.flatnonzero(replicas > 1e-9)
    wanted = np.flatnonzero(demand > 0)
    if not len(wanted):
        return Routing(theta=0.0, flows=flows, weights=np.zeros(len(replicas)))
    if not len(used):
        return _unserved(service, flows, int(wanted[0]))
    share = service.share[np.ix_(used, wanted)]
    reachable = np.isfinite(share).any(axis=0)
    if not reachable.all():
        return _unserved(service, flows, wanted[int(np.argmin(reachable))])
    if len(used) == 1:
        split, load = np.array([demand[wanted]]), np.array([1 / replicas[used[0]]])
        theta = float(share[0] @ demand[wanted] / replicas[used[0]])
    elif _same_pace(share):  # or a single shape: equal utilisation everywhere is optimal
        pace = 1 / share[:, 0]
        part = pace * replicas[used] / float(pace @ replicas[used])
        split, load = np.outer(part, demand[wanted]), pace / float(pace @ replicas[used])
        theta = float(share[0] @ demand[wanted] * pace[0] / float(pace @ replicas[used]))
    else:
        theta, split, load = _least_peak(share, demand[wanted], replicas[used], options)
    flows[np.ix_(used, wanted)] = split
    return Routing(theta=theta, flows=flows, weights=_extended(service, used, wanted, share, load))


def _same_pace(share: Vector) -> bool:
    """Whether each candidate is faster than the first by one factor, whatever the shape."""
    if not np.isfinite(share).all():
        return False
    factors = share / share[0]
    return bool((factors == factors[:, :1]).all())


def _unserved(service: Service, flows: Vector, shape: int) -> Routing:
    """No replica serves the shape: rho sum_c kappa_cb E_c >= lambda_b is violated."""
    share = service.share[:, shape]
    weights = np.where(np.isfinite(share), 1 / share, 0.0)
    return Routing(theta=inf, flows=flows, weights=_scaled(weights))


def _extended(service: Service, used: Indices, wanted: Indices, share: Vector, load: Vector) -> Vector:
    """Weights for candidates without replicas, as small as the values pi_b of the used ones allow."""
    with np.errstate(invalid="ignore"):
        values = np.where(np.isfinite(share), load[:, None] * share, inf).min(axis=0)
    all_shares = service.share[:, wanted]
    weights: Vector = np.where(np.isfinite(all_shares), values / all_shares, 0.0).max(axis=1)
    return _scaled(weights)


def _scaled(weights: Vector) -> Vector:
    top = float(weights.max(initial=0.0))
    return weights / top if top > 0 else weights


def _least_peak(
    share: Vector, demand: Vector, replicas: Vector, options: SolverOptions
) -> tuple[float, Vector, Vector]:
    """The linear program of the module docstring; flows are fractions of each shape's demand."""
    linear = LinearProgram()
    theta = linear.column(cost=1.0)
    by_shape: list[list[tuple[int, float]]] = [[] for _ in demand]
    columns = {}
    for c in range(len(replicas)):
        terms = [(theta, -1.0)]
        for b in np.flatnonzero(np.isfinite(share[c])).tolist():
            column = columns[c, b] = linear.column()
            by_shape[b].append((column, 1.0))
            terms.append((column, float(share[c, b] * demand[b] / replicas[c])))
        linear.at_most(terms, 0.0)
    for terms in by_shape:
        linear.equal(terms, 1.0)
    answer = Session(linear, options, relaxed=True).solve()
    if answer.values is None:
        raise SolverError(f"{answer.solver} found no routing split ({answer.status}); try another --solver")
    split = np.zeros_like(share)
    for (c, b), column in columns.items():
        split[c, b] = max(0.0, answer.values[column])
    split *= demand / split.sum(axis=0)
    loads = (np.where(np.isfinite(share), share, 0.0) * split).sum(axis=1) / replicas
    duals = np.abs(np.array(answer.duals[: len(replicas)])) / replicas
    return float(loads.max()), split, duals if duals.any() else 1 / replicas

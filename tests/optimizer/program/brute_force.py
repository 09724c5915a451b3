"""The optimum of a small problem by trying everything: shares no code with the program but the problem itself."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, product

from scipy.optimize import linprog

from optimizer.program.problem import Problem, ProgramCandidate, ProgramOffer, ProgramWorkload

MOST_UNITS = 3
"""Units of an offer without a limit that are tried."""

Content = tuple[tuple[str, int], ...]
Placed = dict[tuple[str, str], int]


class BruteForce:
    """Tries all numbers of units, all ways to fill them, and all choices of one place where one is asked for."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.limits = problem.limits
        self.offers = {offer.id: offer for offer in problem.offers}
        self.candidates = {one.id: one for one in problem.candidates}
        self._servable: dict[object, float] = {}

    def least_cost(self) -> float | None:
        """Average USD per hour of the cheapest plan, None if there is none."""
        best = None
        for places in self._choices_of_place():
            feasible = [list(self._feasible_units(t, places)) for t in range(len(self.problem.periods))]
            for plan in product(*feasible):
                if self._may_follow(plan):
                    cost = self._cost(plan)
                    best = cost if best is None else min(best, cost)
        return best

    def largest_scale(self) -> float:
        """The largest factor on demand that the budget buys, for one period."""
        best = 0.0
        for places in self._choices_of_place():
            for units in self._unit_vectors():
                if self._cost((units,)) * 730 <= (self.limits.budget_usd_per_month or 0.0) * (1 + 1e-9):
                    for placed in self._fillings(units, places):
                        if self._minima_hold(placed):
                            best = max(best, self._scale(0, placed))
        return best

    def _choices_of_place(self) -> Iterator[dict[str, tuple[str, str | None]]]:
        bound = [workload.id for workload in self.problem.workloads if workload.same_region]
        places = sorted({(offer.provider, offer.region) for offer in self.problem.offers}, key=str)
        for choice in product(places, repeat=len(bound)):
            yield dict(zip(bound, choice, strict=True))

    def _unit_vectors(self) -> Iterator[tuple[int, ...]]:
        ranges = []
        for offer in self.problem.offers:
            most = MOST_UNITS if offer.maximum is None else offer.maximum
            counts = range(offer.committed, max(most, offer.committed) + 1)
            ranges.append([count for count in counts if count == 0 or count >= offer.minimum_order])
        for units in product(*ranges):
            if self._limits_hold(units):
                yield units

    def _limits_hold(self, units: tuple[int, ...]) -> bool:
        counted = list(zip(self.problem.offers, units, strict=True))
        total = sum(offer.accelerators_per_unit * count for offer, count in counted)
        if self.limits.max_accelerators is not None and total > self.limits.max_accelerators:
            return False
        for quota in self.limits.quotas:
            if sum(quota.weight(offer) * count for offer, count in counted if quota.covers(offer)) > quota.maximum:
                return False
        spot = sum(offer.accelerators_per_unit * count for offer, count in counted if offer.is_spot)
        if self.limits.max_spot_share is not None and spot > self.limits.max_spot_share * total + 1e-9:
            return False
        if self.limits.max_provider_share is not None:
            for provider in "pq":
                mine = sum(o.accelerators_per_unit * count for o, count in counted if o.provider == provider)
                if mine > self.limits.max_provider_share * total + 1e-9:
                    return False
        return True

    def _feasible_units(self, t: int, places: dict[str, tuple[str, str | None]]) -> Iterator[tuple[int, ...]]:
        for units in self._unit_vectors():
            if any(
                self._minima_hold(placed) and self._scale(t, placed) >= 1 - 1e-9
                for placed in self._fillings(units, places)
            ):
                yield units

    def _fillings(self, units: tuple[int, ...], places: dict[str, tuple[str, str | None]]) -> Iterator[Placed]:
        ways = []
        for offer, count in zip(self.problem.offers, units, strict=True):
            runnable = [c for c in self.problem.candidates if self._may_run(c, offer, places)]
            fills = _fills(tuple((c.id, c.accelerators_per_replica) for c in runnable), offer.accelerators_per_unit)
            ways.append([(offer.id, combination) for combination in combinations_with_replacement(fills, count)])
        for choice in product(*ways):
            placed: Placed = defaultdict(int)
            for offer_id, combination in choice:
                for content in combination:
                    for candidate, count in content:
                        placed[candidate, offer_id] += count
            yield placed

    def _may_run(
        self, candidate: ProgramCandidate, offer: ProgramOffer, places: dict[str, tuple[str, str | None]]
    ) -> bool:
        workload = self._workload(candidate.workload)
        return (
            candidate.hardware == offer.hardware
            and (workload.regions is None or offer.region in workload.regions)
            and (workload.spot_allowed or not offer.is_spot)
            and places.get(workload.id, (offer.provider, offer.region)) == (offer.provider, offer.region)
        )

    def _workload(self, name: str) -> ProgramWorkload:
        return next(one for one in self.problem.workloads if one.id == name)

    def _minima_hold(self, placed: Placed) -> bool:
        running = {self.offers[offer].provider for (_, offer), count in placed.items() if count}
        if len(running) < self.limits.min_providers > 1:
            return False
        for workload in self.problem.workloads:
            mine = [
                (self.offers[offer].region, count)
                for (candidate, offer), count in placed.items()
                if self.candidates[candidate].workload == workload.id
            ]
            if sum(count for _, count in mine) < workload.minimum_replicas:
                return False
            for region, minimum in workload.minimum_replicas_by_region.items():
                if sum(count for there, count in mine if there == region) < minimum:
                    return False
        return True

    def _scale(self, t: int, placed: Placed) -> float:
        """The largest factor on the demand of a period that the replicas serve, whatever loss the limits name."""
        scale = float("inf")
        for workload in self.problem.workloads:
            demand = workload.demand[t]
            for fraction, left in self._losses(workload, placed):
                wanted = tuple(rate * fraction for rate in demand)
                if any(wanted):
                    scale = min(scale, self._factor(workload, wanted, left))
        return scale

    def _losses(
        self, workload: ProgramWorkload, placed: Placed
    ) -> Iterator[tuple[float, tuple[tuple[str, float], ...]]]:
        def left(lost: set[str]) -> dict[str, float]:
            total: dict[str, float] = defaultdict(float)
            for (candidate, offer), count in placed.items():
                if self.candidates[candidate].workload == workload.id and offer not in lost:
                    total[candidate] += count * (1 - self.problem.spot_margin if self.offers[offer].is_spot else 1.0)
            return total

        yield 1.0, tuple(sorted(left(set()).items()))
        if self.limits.max_spot_share is not None:
            spot = {offer.id for offer in self.problem.offers if offer.is_spot}
            yield 1 - self.limits.max_spot_share, tuple(sorted(left(spot).items()))
        if self.limits.max_provider_share is not None:
            for provider in "pq":
                mine = {offer.id for offer in self.problem.offers if offer.provider == provider}
                yield 1 - self.limits.max_provider_share, tuple(sorted(left(mine).items()))
        if self.limits.spare_replicas:
            everything = left(set())
            sizes = {offer.hardware: offer.accelerators_per_unit for offer in self.problem.offers}
            for hardware, size in sizes.items():
                remaining = dict(everything)
                for name in everything:
                    candidate = self.candidates[name]
                    if candidate.hardware == hardware:
                        lost = self.limits.spare_replicas * (size // candidate.accelerators_per_replica)
                        remaining[name] = max(0.0, remaining[name] - lost)
                yield 1.0, tuple(sorted(remaining.items()))

    def _factor(
        self, workload: ProgramWorkload, wanted: tuple[float, ...], left: tuple[tuple[str, float], ...]
    ) -> float:
        key = (workload.id, wanted, left)
        if key not in self._servable:
            self._servable[key] = self._largest_factor(workload, wanted, left)
        return self._servable[key]

    def _largest_factor(
        self, workload: ProgramWorkload, wanted: tuple[float, ...], left: tuple[tuple[str, float], ...]
    ) -> float:
        """maximise f: sum_c x_cb = f wanted_b, sum_b x_cb / kappa_cb <= rho left_c."""
        rho = self.problem.utilisation
        served = [self.candidates[name].requests_per_s for name, _ in left]
        if len(workload.shapes) == 1:
            (shape,), (rate,) = workload.shapes, wanted
            return rho * sum(r.get(shape, 0.0) * n for r, (_, n) in zip(served, left, strict=True)) / rate
        pairs = [(c, b) for c in range(len(left)) for b, shape in enumerate(workload.shapes) if shape in served[c]]
        if not pairs:
            return 0.0
        equalities = [[float(b == shape) for _, b in pairs] + [-wanted[shape]] for shape in range(len(workload.shapes))]
        capacity = [
            [1 / served[c][workload.shapes[b]] if c == own else 0.0 for c, b in pairs] + [0.0]
            for own in range(len(left))
        ]
        answer = linprog(
            [0.0] * len(pairs) + [-1.0],
            A_ub=capacity,
            b_ub=[rho * n for _, n in left],
            A_eq=equalities,
            b_eq=[0.0] * len(equalities),
        )
        return float(-answer.fun)

    def _may_follow(self, plan: tuple[tuple[int, ...], ...]) -> bool:
        hours = [period.hours for period in self.problem.periods]
        periods = len(plan)
        for index, offer in enumerate(self.problem.offers):
            units = [plan[t][index] for t in range(periods)]
            if not offer.by_period:
                if len(set(units)) > 1:
                    return False
                continue
            if not self._stays_up(units, hours):
                return False
        return True

    def _stays_up(self, units: list[int], hours: list[float]) -> bool:
        """Each unit started within the minimum before a period's begin is still among the units of that period."""
        periods = len(units)
        for t in range(periods):
            young = 0
            for back in range(periods):
                age = sum(hours[(t - step) % periods] for step in range(1, back + 1))
                if back == 0 or age < self.limits.minimum_hours_up:
                    young += max(0, units[(t - back) % periods] - units[(t - back - 1) % periods])
            if self.limits.minimum_hours_up > min(hours) and young > units[t]:
                return False
        return True

    def _cost(self, plan: tuple[tuple[int, ...], ...]) -> float:
        hours = [period.hours for period in self.problem.periods]
        total = 0.0
        for index, offer in enumerate(self.problem.offers):
            units = [plan[t][index] for t in range(len(plan))]
            paid = sum(count * h for count, h in zip(units, hours, strict=True))
            if offer.by_period:
                boot = max((c.boot_hours for c in self.problem.candidates if c.hardware == offer.hardware), default=0.0)
                paid += boot * sum(max(0, units[t] - units[t - 1]) for t in range(len(units)))
            total += self.problem.effective_usd_per_hour(offer) * paid
        return total / sum(hours)


@cache
def _fills(sizes: tuple[tuple[str, int], ...], unit: int) -> tuple[Content, ...]:
    """All ways to fill one unit to which no replica can be added."""
    found = set()
    for counts in product(*(range(unit // size + 1) for _, size in sizes)):
        free = unit - sum(size * count for (_, size), count in zip(sizes, counts, strict=True))
        if free >= 0 and all(size > free for _, size in sizes):
            found.add(tuple((name, count) for (name, _), count in zip(sizes, counts, strict=True) if count))
    return tuple(sorted(found))

"""Turns AWS's price lists, specifications and markets into offers: through the account where there is one, else from
the public lists."""

import re
from typing import Final

from providers.aws import account, public
from providers.base import Answer, Coverage, FetchContext, own_regions
from providers.errors import CredentialsRefused
from providers.http import Client
from providers.tally import Tally

_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
_REGIONS_VARIABLE: Final = "COSTOPT_AWS_REGIONS"


class Aws:
    """The adapter of AWS; credentials (keys or a profile) add spot by zone, savings plans and capacity blocks."""

    name = "aws"

    def fetch(self, context: FetchContext) -> Answer:
        """On demand, reserved and spot of every accelerated instance type; with credentials savings plans and
        capacity blocks too.

        `COSTOPT_AWS_REGIONS` (names with commas, or `all`) stands in for the context's regions where there are none.
        """
        regions = own_regions(self.name, context.regions, _REGION) or _regions_of(context)
        tally = Tally(self.name, context.now)
        with Client(self.name, context, account.HOSTS | public.HOSTS) as client:
            if account.has_credentials(context.environment):
                try:
                    everywhere = () if regions == ("all",) else regions
                    return tally.answer(account.fetch(client, everywhere, context, tally), account.sources())
                except CredentialsRefused as error:
                    tally = Tally(self.name, context.now)
                    tally.note(f"the account may not be asked ({error}); the public lists were read instead")
            coverage: list[Coverage] = public.fetch(client, regions, context, tally)
        return tally.answer(coverage, public.sources())


def _regions_of(context: FetchContext) -> tuple[str, ...]:
    named = tuple(filter(None, context.environment.get(_REGIONS_VARIABLE, "").replace(" ", "").split(",")))
    return named if named == ("all",) else own_regions("aws", named, _REGION)


ADAPTER: Final = Aws()

"""The language of the business: aggregates, lifecycles, contracts, decisions and ports. Pure."""

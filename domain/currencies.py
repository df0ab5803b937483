"""How many decimals each currency has.

Source: ISO 4217, List One ("current currency and funds codes"), as published by SIX Financial
Information on 2026-01-01. Left out are the 13 codes whose minor unit is "N.A." (metals, bond
market units, XDR, XSU, XUA, XTS, XXX): an amount of them has no exact smallest unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_CODES_BY_DECIMALS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
        CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP
        GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK
        LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO
        NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS
        SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST
        XAD XCD XCG YER ZAR ZMW ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

# Withdrawn between List One of 2025-01-01 and this one, and kept: a payment taken in the old
# currency can still be refunded, and what is stored in it must stay readable. For the same
# reason a code that a release of this table knew is never removed from it.
_WITHDRAWN_BY_DECIMALS = {2: "ANG BGN"}

DECIMALS: Mapping[str, int] = MappingProxyType(
    {
        code: decimals
        for table in (_CODES_BY_DECIMALS, _WITHDRAWN_BY_DECIMALS)
        for decimals, codes in table.items()
        for code in codes.split()
    }
)
"""Currency code → number of decimals (the exponent of its minor unit)."""

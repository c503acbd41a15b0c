"""Acceptance: how many tokens a round of draft and verification emits. Knows no time, no cost."""

from specmodel.acceptance.accuracy import ConditionalAccuracy as ConditionalAccuracy
from specmodel.acceptance.accuracy import FullAccuracy as FullAccuracy
from specmodel.acceptance.feasible import check_shape as check_shape
from specmodel.acceptance.feasible import required_conditional as required_conditional
from specmodel.acceptance.other_depth import carry_accept_length as carry_accept_length
from specmodel.acceptance.other_depth import (
    full_accuracy_from_accept_length as full_accuracy_from_accept_length,
)
from specmodel.acceptance.other_depth import tail_spread as tail_spread
from specmodel.acceptance.transfer import TRANSFER_PRIOR as TRANSFER_PRIOR
from specmodel.acceptance.transfer import TransferFactor as TransferFactor
from specmodel.acceptance.transfer import transfer_prior as transfer_prior
from specmodel.acceptance.transfer import transfer_words as transfer_words

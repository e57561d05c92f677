"""The client's side of a gateway: reading its log, writing to it, and asking how it is."""

from penstock.aquifer.client.administrator import Administrator
from penstock.aquifer.client.group import GroupSubscription
from penstock.aquifer.client.log_reader import LogReader, LogState
from penstock.aquifer.client.metrics import Deficit, Metrics
from penstock.aquifer.client.probe import probe
from penstock.aquifer.client.producer import PreparedPart, Producer, Transaction
from penstock.aquifer.client.publisher import AquiferPublisher
from penstock.aquifer.client.redelivery import Redelivery
from penstock.aquifer.client.subscription import AquiferSubscription

__all__ = [
    "Administrator",
    "AquiferPublisher",
    "AquiferSubscription",
    "Deficit",
    "GroupSubscription",
    "LogReader",
    "LogState",
    "Metrics",
    "PreparedPart",
    "Producer",
    "Redelivery",
    "Transaction",
    "probe",
]

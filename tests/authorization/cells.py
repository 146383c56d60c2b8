"""The cells of all authorized requests, from each file of cells."""

from tests.authorization import cells_of_acls, cells_of_admin, cells_of_groups, cells_of_topics, cells_of_transactions

CELLS = (
    *cells_of_acls.CELLS,
    *cells_of_admin.CELLS,
    *cells_of_groups.CELLS,
    *cells_of_topics.CELLS,
    *cells_of_transactions.CELLS,
)

"""What it costs that rows have one order: each query as Gatehouse rewrites it, beside the same query of DuckDB alone.

Two million rows, one thread. Prints the processor time of both, the quickest of `--rounds`, and their ratio.
"""

import argparse
import tempfile
import time

from gatehouse.store.database import connect
from gatehouse.store.repeatable_sql import repeatable

TABLE = (
    "SELECT i AS n, hash(i) % 100000 AS k, to_timestamp(1.7e9 + hash(i + 1) % 2000000) AS ts, "
    "(hash(i + 2) % 1000) / 7.0 AS v, i % 7 AS g, hash(i + 5)::VARCHAR AS s{more} FROM range({rows}) AS r(i)"
)
QUERIES = {
    "LIMIT": "SELECT k, ts, v FROM t ORDER BY ts LIMIT 1000",
    "DISTINCT ON": "SELECT DISTINCT ON (k) k, ts, v FROM t ORDER BY k, ts DESC",
    "lag": "SELECT k, ts, v, lag(v) OVER (PARTITION BY k ORDER BY ts) AS a FROM t",
    "a frame of ROWS": "SELECT k, ts, sum(g) OVER (PARTITION BY k ORDER BY ts ROWS 5 PRECEDING) AS a FROM t",
    "QUALIFY row_number()": "SELECT k, ts, v FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    "the same beside *": "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    "the same, 26 columns": "SELECT * FROM wide QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    "first_value, RANGE": "SELECT k, ts, first_value(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL 1 HOUR "
    "PRECEDING) AS a FROM t",
    "sum of doubles": "SELECT k, sum(v) AS a FROM t GROUP BY k",
    "stddev": "SELECT k, stddev(v) AS a FROM t GROUP BY k",
}


def main() -> None:
    """Measure every query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, connect(threads=1, most=4 << 30) as connection:
        more = "".join(f", hash(i + {column}) AS c{column}" for column in range(20))
        for name, columns in {"t": "", "wide": more}.items():
            table = TABLE.format(more=columns, rows=options.rows)
            connection.execute(f"COPY ({table}) TO '{folder}/{name}.parquet'")
            connection.execute(f"CREATE VIEW {name} AS FROM '{folder}/{name}.parquet'")
        for name, query in QUERIES.items():
            seconds: list[float] = []
            for text in (query, repeatable(connection, query, name)):
                rounds = []
                for _ in range(options.rounds):
                    began = time.process_time()
                    connection.execute(f"CREATE OR REPLACE TEMP TABLE result AS {text}")
                    rounds.append(time.process_time() - began)
                seconds.append(min(rounds))
            print(f"{name:<22}{seconds[0]:7.2f} s{seconds[1]:7.2f} s{seconds[1] / seconds[0]:7.1f}", flush=True)


if __name__ == "__main__":
    main()

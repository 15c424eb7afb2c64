"""The table of a cell: what is cut, what its tooltips hold, and its colours."""

from __future__ import annotations

import re
from dataclasses import replace

from ciao_kernel.display.html_table import table_html
from ciao_kernel.display.table import Table
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.replica_colors import color_of

PS, WORKER = Replica("ps", 0), Replica("worker", 0)
JOB = Job("mnist", "local", "tensorflow", (PS, WORKER), 1000.0, "/jobs/mnist/work")
LONG = "step 17 " * 20


def table(state: State, *replicas: ReplicaStatus, job: Job = JOB) -> Table:
    made = Table(job, now=lambda: 1080.0)
    made.status = Status(state, replicas)
    return made


def widths(html: str) -> list[str]:
    return re.findall(r"<th[^>]*>|min-width:[^;\"]+", html)


def test_the_widths_depend_on_nothing_that_changes() -> None:
    for job in (JOB, replace(JOB, kind_of_place="namespace")):
        before = table_html(table(State.PENDING, job=job))
        node, reason = "gpu-pool-with-a-long-name-17", "FailedScheduling: " + LONG
        during = table(
            State.RUNNING,
            ReplicaStatus(PS, State.PENDING, 1010.0, reason=reason),
            ReplicaStatus(WORKER, State.RUNNING, 1010.0, log="/logs/worker-0.log"),
            job=job,
        )
        during.output(Output(WORKER, LONG.encode() + b"\n", 1))
        if job.on_cluster:
            assert during.status is not None
            rows = tuple(replace(one, node=node, restarts=3) for one in during.status.replicas)
            during.status = replace(during.status, replicas=rows)
        assert widths(table_html(during)) == widths(before)


def test_a_narrow_cell_has_the_title_without_its_bar() -> None:
    """The words behind it say more: how much time is left would be cut first."""
    live = table(State.RUNNING, ReplicaStatus(WORKER, State.RUNNING, 1010.0))
    live.output(Output(WORKER, b"Epoch 1/4\nEpoch 2/4\nEpoch 3/4\n", 3))
    html = table_html(live)
    bar = "━" * 6 + "─" * 6
    assert f'title="mnist: Running  {bar} 50 % (epoch 3/4)' in html
    assert f">mnist: Running  <span>{bar} </span>50 % (epoch 3/4)" in html
    assert re.search(r"@container\(max-width:50em\){[^{]*,\.ciao>b>span{display:none}", html)
    assert "<b><span>" not in table_html(table(State.PENDING))


def test_what_may_be_cut_is_in_a_tooltip() -> None:
    reason = "FailedScheduling: no node has enough memory"
    live = table(
        State.RUNNING,
        ReplicaStatus(PS, State.PENDING, 0.0, reason=reason),
        ReplicaStatus(WORKER, State.RUNNING, 1010.0, log="/logs/worker-0.log"),
    )
    live.output(Output(WORKER, LONG.encode() + b"\n", 1))
    html = table_html(live)
    assert f'title="{LONG.strip()}"' in html
    assert f'title="Pending ({reason})"' in html
    assert f"<code>Pending ({reason})</code>" in html  # in the room of the line that is missing
    assert 'title="/logs/worker-0.log">worker-0.log<' in html
    assert re.search(r'<td title="Running since \w+ \d+ [\d:]+">1m 20s</td>', html)


def test_a_planned_stop_looks_neutral_under_a_job_that_succeeded() -> None:
    ended = ReplicaStatus(WORKER, State.SUCCEEDED, 1020.0, 0)
    stopped = ReplicaStatus(PS, State.STOPPED, 1021.0, -15)
    assert "warn" not in table_html(table(State.SUCCEEDED, stopped, ended))
    assert "warn" in table_html(table(State.FAILED, stopped, ended))


def test_each_replica_has_the_mark_of_its_colour() -> None:
    html = table_html(table(State.PENDING))
    for replica in (PS, WORKER):
        assert f'<i style="background:{color_of(replica).html}"></i>{replica}<' in html


def test_the_sum_of_many_replicas_is_above_the_rows_and_is_not_cut_below_them() -> None:
    replicas = tuple(Replica("worker", number) for number in range(1000))
    states = [State.FAILED, State.LOST, State.PENDING, State.SUCCEEDED] * 200
    known = [ReplicaStatus(*two) for two in zip(replicas, states, strict=False)]
    for job in (JOB, replace(JOB, kind_of_place="namespace")):
        html = table_html(table(State.RUNNING, *known, job=replace(job, replicas=replicas)))
        above = "1,000 replicas: 200 Failed, 200 Lost, 400 Pending, 200 Succeeded"
        assert f"</b><div>{above}</div><table" in html
        *_, last = re.findall(r"<tr>.*?</tr>", html)
        assert ">… 960 more<" in last
        # A narrow cell hides columns by their numbers: this row has a cell in each.
        columns = html.count("<th") - html.count("<thead")
        assert last.count("<td") == columns
        assert last.endswith("<td></td>" * (columns - 2) + "</tr>")
    assert "replicas:" not in table_html(table(State.RUNNING))


def test_a_narrow_page_hides_the_node_of_clusters_and_no_other_fourth_column() -> None:
    for job in (JOB, replace(JOB, kind_of_place="namespace")):
        restarted = ReplicaStatus(WORKER, State.RUNNING, 1010.0, restarts=2)
        html = table_html(table(State.RUNNING, restarted, job=job))
        fourth = re.findall(r"<th[^>]*>([^<]*)</th>", html)[3]
        assert ('class="ciao-nodes"' in html) is (fourth == "node")


def test_a_narrow_cell_needs_no_room_for_the_columns_that_it_hides() -> None:
    hidden = {"b": {"node": 16, "lines/s": 6}, "c": {"restarts": 7, "log": 11}}
    for job in (JOB, replace(JOB, kind_of_place="namespace")):
        html = table_html(table(State.RUNNING, job=job))
        found = {name: int(room) for name, room in re.findall(r"--(\w):(\d+)ch", html)}
        room = found["a"]
        for name, widths in hidden.items():
            room -= sum(2 + w for heading, w in widths.items() if f">{heading}</th>" in html)
            assert found[name] == room


def test_a_narrow_cell_hides_the_columns_that_its_minimum_widths_leave_out() -> None:
    for job in (JOB, replace(JOB, kind_of_place="namespace")):
        html = table_html(table(State.RUNNING, job=job))
        heads = re.findall(r"<th[^>]*>([^<]*)</th>", html)
        selector = re.compile(r"(-nodes)? tr>:nth-(last-)?child\((\d+)\)")
        hidden = [
            {
                heads[-int(place) if last else int(place) - 1]
                for nodes, last, place in selector.findall(rule)
                if not nodes or job.on_cluster
            }
            for rule in html.split("</style>")[0].split("@container")[1:]
        ]
        on_clusters = [{"node"}, {"restarts"}] if job.on_cluster else [set(), set()]
        assert hidden == [{"lines/s"} | on_clusters[0], {"log"} | on_clusters[1]]

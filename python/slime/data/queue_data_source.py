"""The durable queue's data source of slime 0.4. `--data-source-path slime.data.queue_data_source.QueueDataSource` is the
program's own buffer, whose ledger is durable; code that builds on the class gets the package's data source."""

from slime.data.data_source import RolloutDataSourceWithBuffer

__all__ = ["QueueDataSource", "QueueReader"]


class QueueDataSource(RolloutDataSourceWithBuffer):
    """RolloutDataSourceWithBuffer under its name; a coordinator and a plan of restoring are not needed here."""

    def __init__(self, args, *, controller=None, restore_plan=None, reader_generation=None):
        super().__init__(args)


class QueueReader:
    """A worker's reader: in a run a function's `data_source` is one."""

    def __init__(self, data_source):
        self._data_source = data_source

    def get_samples(self, num_samples):
        return self._data_source.get_samples(num_samples)

    async def get_samples_async(self, num_samples):
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, self.get_samples, num_samples)

    def add_samples(self, samples):
        self._data_source.add_samples(samples)


def __getattr__(name):
    if name in ("RolloutQueueController", "create_queue_controller", "QueueReaderConfig"):
        raise AttributeError(
            f"slime.data.queue_data_source.{name} of THUDM/slime is not here: the program's ledger is the queue, and a "
            "function's `data_source` reads it"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

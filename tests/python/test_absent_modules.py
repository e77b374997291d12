"""Modules of the original: those that are here work, those that are not say what to use instead."""

import importlib

import pytest
from slime.absent import ABSENT, advice

# What plug-ins for slime up to 0.4.0 import.
HERE = {
    "slime.data.data_source": "DataSource RolloutDataSource RolloutDataSourceWithBuffer pop_first pop_oldest",
    "slime.rollout.data_source": "RolloutDataSource RolloutDataSourceWithBuffer pop_first pop_oldest",
    "slime.rollout.base_types": "RolloutFnTrainOutput RolloutFnEvalOutput call_rollout_fn finalize_rollout_groups iter_samples",
    "slime.rollout.sample_hooks": "apply_rollout_sample_hooks rollout_context set_current_rollout_id",
    "slime.observability.trace_utils": "trace_span trace_function trace_event bind_trace export_trace import_trace",
    "slime.utils.trace_utils": "trace_span trace_function build_sglang_meta_trace_attrs",
    "slime.observability.timer": "Timer timer",
    "slime.observability.metric_utils": "compute_statistics compute_pass_rate dict_add_prefix compute_rollout_step has_repetition",
    "slime.observability.rollout_metrics": "compute_metrics_from_samples compute_perf_metrics_from_samples",
    "slime.ray.rollout": "compute_metrics_from_samples compute_perf_metrics_from_samples compute_rollout_step",
    "slime.utils.metric_utils": "compute_statistics compute_pass_rate dict_add_prefix compute_rollout_step has_repetition",
    "slime.utils.logging_utils": "log configure_logger init_tracking finish_tracking",
    "slime.utils.timer": "Timer timer inverse_timer",
    "slime.observability.logging_utils": "log configure_logger",
    "slime.data.queue_data_source": "QueueDataSource QueueReader",
    "slime.data.transport": "use_straw pack_rollout_payload publish_rollout_async inherit_queue_context load_rollout_samples",
    "slime.data.tensor": "TensorRef DiskTensorRef materialize_tensor_refs",
    "slime.data.archive": "RolloutArchive",
    "slime.ray.rollout_data_source": "RolloutDataSourceWithBuffer",
    "slime.utils.score_centering": "SAMPLER_TOPK_FIELDS validate_sampler_topk validate_sampler_top_p",
    "slime.utils.routed_experts": "validate_routed_experts_value",
    "slime.rollout.sft_rollout": "generate_rollout",
    "slime.rollout.on_policy_distillation": "reward_func post_process_rewards",
    "slime.utils.arguments": "parse_args get_slime_extra_args_provider",
    "slime.utils.staleness": "sample_staleness compute_staleness_metrics",
    "slime.utils.weight_sync": "should_flush_cache",
    "slime.utils.async_utils": "AsyncPacer run get_async_loop",
    "slime.backends.sglang_utils.server_control": "abort_servers_until_idle num_requests_from_load",
    "slime.rollout.sglang_rollout": "GenerateState generate generate_and_rm generate_and_rm_group abort generate_rollout get_model_url _MetricGatherer _call_dynamic_filter",
    "slime.agent.trajectory": "TurnRecord TokenSegment TurnSegment make_turn_segment merge_turns fan_out_sample_segments",
    "slime.backends.megatron_utils.cp_utils": "get_logits_and_tokens_offset_with_cp get_sum_of_sample_mean",
    "slime.utils.http_utils": "get post get_rollout_num_engines get_sglang_client_concurrency",
}


@pytest.mark.parametrize("module", HERE)
def test_what_plug_ins_import_is_here(module):
    found = importlib.import_module(module)
    assert [name for name in HERE[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", ABSENT)
def test_what_is_not_here_says_what_to_use_instead(module):
    if module in ("slime.backends.megatron_utils", "slime.backends.sglang_utils", "slime.ray"):
        module += ".actor"  # the package has modules that are here
    with pytest.raises(ModuleNotFoundError, match="of THUDM/slime is not here: ") as caught:
        importlib.import_module(module)
    assert advice(module) in str(caught.value)


def test_the_managers_module_has_its_metrics_alone():
    with pytest.raises(ImportError, match="RolloutManager of THUDM/slime is not here"):
        from slime.ray.rollout import RolloutManager  # noqa: F401


def test_a_name_that_never_was_one_is_not_explained():
    with pytest.raises(ModuleNotFoundError, match="No module named 'slime.utils.nothing'"):
        importlib.import_module("slime.utils.nothing")

#include "engine/gpu_input_block.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/adapter_tiles.h"
#include "engine/cache_shape.h"
#include "engine/drawn_rows.h"
#include "engine/exact_steps.h"
#include "engine/page_tables.h"
#include "kernels/gpu/latent_prompts.h"
#include "kernels/gpu/paged_units.h"
#include "kernels/gpu/recorded_rows.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;

constexpr int32_t kNoState = -1;  // of padding

int64_t pages_of(int64_t num_tokens) { return (num_tokens + kPageTokens - 1) / kPageTokens; }

/// Page tables of a step: one of each request, or in a recorded step one of each row.
int64_t most_tables(const StepRunnerConfig& config) {
  const int64_t rows = config.max_running_requests * (1 + config.most_drafts);
  return std::max(config.max_running_requests, std::min(rows, kernels::kRecordedRows.back()));
}

/// An upper bound of what StepBlock holds: per row, per sequence, per tile, per page, and the lists
/// of decode; a part of it again for each further page table.
int64_t block_bytes(const StepRunnerConfig& config, const kernels::DecodeOptions& decode) {
  const int64_t drawn = most_drawn_rows(config);
  // Rows that draw behind tentative tokens are no sequences of their own.
  const int64_t sequences = config.verify_tokens > 0 ? drawn - config.max_prefill_tokens : drawn;
  constexpr auto kDrawnBytes = static_cast<int64_t>(40 + sizeof(kernels::RowExtras));
  const int64_t rows = config.max_prefill_tokens + sequences;
  const kernels::DecodeLimits lists = kernels::decode_limits(sequences, decode);
  const int64_t tables = 1 + config.num_window_groups, kinds = config.num_window_groups > 0 ? 2 : 1;
  const int64_t segments = static_cast<int64_t>(sizeof(kernels::DecodeSegment)) * lists.segments,
                members = static_cast<int64_t>(sizeof(kernels::DecodeMember)) * lists.members,
                pages = 4 * most_tables(config) * (pages_of(config.context_length) + 1);
  return 88 * rows + 200 * sequences + kDrawnBytes * (drawn - sequences) + 32 * (rows * 2 + 4096) +
         kinds * (4 * lists.units + members) + tables * (segments + pages) +
         config.num_window_groups * (4 * rows + 16 * sequences + 64) +
         4 * pages_of(kernels::kMostGatheredRows) + (1 << 16);
}

/// Tiles of all rows and of those that draw.
int64_t adapter_bytes(const StepRunnerConfig& config, int64_t num_adapters) {
  const int64_t draw = most_drawn_rows(config);
  return adapter_tile_bytes(config.max_prefill_tokens + draw, num_adapters) +
         adapter_tile_bytes(draw, num_adapters);
}

/// Expanded heads of latent attention have at most so many numbers.
constexpr kernels::RotaryShape kLongestHeads{1, 1, 256, 0};

bool is_latent(const model::Network& network) {
  return cache_of_tokens(network.blocks()).value_size == 0;
}

kernels::DecodeOptions decode_options(const kernels::Gpu& gpu, const model::CacheSpec& cache,
                                      const StepRunnerConfig& step) {
  if (cache.value_size == 0)
    return kernels::latent_decode_options(cache.queries_per_head, gpu.num_processors());
  const int blocks = kernels::decode_blocks_per_processor(
      static_cast<int>(cache.key_size), static_cast<int>(c10::elementSize(step.kv_dtype)));
  return {cache.queries_per_head, cache.heads, gpu.num_processors() * blocks,
          step.shares_prompt_reads};
}

bool has_windows(const model::Network& network) {
  return std::ranges::any_of(network.config().window, [](int64_t tokens) { return tokens > 0; });
}

bool has_only_windows(const model::Network& network) {
  return has_windows(network) &&
         std::ranges::all_of(network.config().window, [](int64_t tokens) { return tokens > 0; });
}

template <typename T>
std::span<const T> view(const std::vector<T>& numbers) {
  return numbers;
}

}  // namespace

GpuInputBlock::GpuInputBlock(const kernels::Gpu& gpu, model::Network& network,
                             const StepRunnerConfig& config, at::Device device)
    : spare_page_(config.num_pages),
      num_window_groups_(config.num_window_groups),
      is_latent_(is_latent(network)),
      decode_(decode_options(gpu, cache_of_tokens(network.blocks()), config)),
      has_decode_(is_latent_ ? index_size(network.blocks()) == 0 &&
                                   gpu.has_latent_units(cache_of_tokens(network.blocks()).key_size,
                                                        network.weights().flat().scalar_type())
                             : gpu.has_decode_attention(attention_heads(network),
                                                        network.weights().flat().scalar_type())),
      has_windows_(has_windows(network)),
      has_only_windows_(has_only_windows(network)),
      splits_keys_{decode_.num_kv_heads, gpu.num_processors(),
                   kernels::most_tile_rows(cache_of_tokens(network.blocks()).key_size)},
      has_packed_(is_latent_
                      ? has_decode_ && gpu.has_packed_attention(
                                           kLongestHeads, network.weights().flat().scalar_type())
                      : !has_windows_ && network.config().score_cap == 0 &&
                            gpu.has_packed_attention(attention_heads(network),
                                                     network.weights().flat().scalar_type()) &&
                            gpu.has_tiled_attention(attention_heads(network),
                                                    network.weights().flat().scalar_type(),
                                                    config.kv_dtype)),
      has_states_(config.num_states > 0),
      num_adapters_(adapters_of_rows(network)),
      block_(block_bytes(config, decode_) + adapter_bytes(config, num_adapters_), device) {}

/// Which units of attention there are: those of prompts, and those of sequences with one row.
void GpuInputBlock::fill_units(std::span<const StepSequence> sequences, int64_t rows,
                               bool is_decode, GpuStepInputs& in) {
  if (in.arithmetic == StepArithmetic::kTraining) return add_exact(sequences, in);
  std::vector<kernels::PagedSpan> spans;
  int64_t row = 0, table_pages = 0;
  spans.reserve(sequences.size());
  for (const StepSequence& sequence : sequences) {
    spans.push_back({sequence.num_rows, sequence.num_keys()});
    row += sequence.num_rows;
    table_pages += sequence.num_pages();
  }
  table_pages += rows - row;
  in.spans = spans;
  if (is_latent_ && !(is_decode && has_decode_)) {
    if (has_packed_ && !is_decode) add_packed(sequences, kernels::plan_expanded(spans), in);
    if (has_decode_) add_tiles(kernels::plan_absorbed(spans), row, in);
    return;
  }
  if (has_packed_ && !is_decode) add_packed(sequences, kernels::plan_packed(spans), in);
  if (!is_latent_) plan_tiles(spans, row, is_decode ? rows : 0, in);
  const bool has_single_rows =
      std::ranges::any_of(sequences, [](const StepSequence& it) { return it.num_rows == 1; });
  if (!has_decode_ || !has_single_rows) return;
  const int64_t launched = is_decode ? rows : static_cast<int64_t>(sequences.size());
  const auto plan = [&](std::size_t group, int64_t first_page) {
    return kernels::plan_decode(single_rows(sequences, group, first_page), launched, decode_);
  };
  add_decode(plan(0, 0), launched, table_pages, {&in.batch, 1});
  if (!in.window_batches.empty())
    add_decode(plan(1, table_pages), launched, table_pages, in.window_batches);
}

/// Tables of pages lie in the order of the sequences.
void GpuInputBlock::add_exact(std::span<const StepSequence> sequences, GpuStepInputs& in) {
  std::vector<kernels::ExactSequence> planned;
  int64_t row = 0, page = 0;
  for (const StepSequence& sequence : sequences) {
    planned.push_back({row, sequence.num_rows, sequence.num_keys(), page});
    row += sequence.num_rows;
    page += sequence.num_pages();
  }
  const int64_t tile = kernels::exact_tile(splits_keys_.most_tile, decode_.group);
  const kernels::ExactPlan plan = kernels::plan_exact(planned, page, decode_.group, tile);
  in.batch.exact = kernels::exact_launch(plan, [&](const std::vector<int32_t>& list) {
    block_.add(view(list));
    return block_.last_on_device(at::kInt, static_cast<int64_t>(list.size()));
  });
}

void GpuInputBlock::add_decode(const kernels::DecodePlan& plan, int64_t launched,
                               int64_t table_pages, std::span<kernels::PagedBatch> batches) {
  const auto add = [&](const auto& list, int64_t room) {
    const int64_t integers = sizeof(list[0]) / sizeof(int32_t);
    const auto place = block_.add<std::decay_t<decltype(list[0])>>(room);
    std::ranges::copy(list, place.begin());
    return block_.last_on_device(at::kInt, room * integers);
  };
  kernels::DecodeLaunch launch;
  launch.num_units = plan.room.units;
  launch.num_records = plan.room.records;
  launch.unit_starts = add(plan.unit_starts, plan.room.units + 1);
  launch.members = add(plan.members, plan.room.members);
  launch.record_starts = add(plan.record_starts, launched + 1);
  std::vector<kernels::DecodeSegment> segments = plan.segments;
  for (kernels::PagedBatch& batch : batches) {
    batch.decode = launch;
    batch.decode.segments = add(segments, plan.room.segments);
    for (kernels::DecodeSegment& segment : segments)
      segment.pages_offset += static_cast<int32_t>(table_pages);
  }
}

/// `rows`: those that are real; `launched`: of a recorded step. Layers with a window take the same
/// sequences whole.
void GpuInputBlock::plan_tiles(std::span<const kernels::PagedSpan> spans, int64_t rows,
                               int64_t launched, GpuStepInputs& in) {
  using kernels::TiledLayers;
  const int64_t group = decode_.group;
  const auto add = [&](const kernels::KeySplit& split, TiledLayers layers) {
    const kernels::UnitPlan prompts = kernels::plan_prompts(spans, group, split);
    kernels::UnitPlan single;
    // What splits keys goes first, and one launch of two can.
    if (!has_decode_)
      single = kernels::plan_single_rows(spans, launched, group,
                                         prompts.num_partials > 0 ? kernels::KeySplit{} : split);
    if (single.num_partials > 0) add_tiles(single, rows, in, layers);
    add_tiles(prompts, rows, in, layers);
    if (single.num_partials == 0) add_tiles(single, rows, in, layers);
  };
  const kernels::KeySplit whole{.most_tile = splits_keys_.most_tile};
  if (!has_windows_) return add(splits_keys_, TiledLayers::kAll);
  if (has_only_windows_) return add(whole, TiledLayers::kAll);
  add(splits_keys_, TiledLayers::kWithoutWindow);
  add(whole, TiledLayers::kWithWindow);
}

/// `rows`: those that are real.
void GpuInputBlock::add_tiles(const kernels::UnitPlan& plan, int64_t rows, GpuStepInputs& in,
                              kernels::TiledLayers layers) {
  if (plan.num_units == 0) return;
  const auto device = [&](at::ScalarType type, int64_t count) {
    return block_.last_on_device(type, count);
  };
  kernels::TileLaunch launch;
  launch.layers = layers;
  launch.tile = plan.tile;
  launch.num_units = plan.num_units;
  block_.add(view(plan.sequence_U));
  launch.unit_sequence_U = device(at::kInt, plan.num_units);
  block_.add(view(plan.tile_U));
  launch.unit_tile_U = device(at::kInt, plan.num_units);
  block_.add(view(plan.chunk_U));
  launch.unit_chunk_U = device(at::kInt, plan.num_units);
  block_.add(view(plan.is_on_U));
  launch.unit_is_on_U = device(at::kByte, plan.num_units);
  block_.add<int32_t>(1)[0] = plan.chunk_tokens;
  launch.chunk_tokens = device(at::kInt, 1);
  block_.add<int32_t>(1)[0] = static_cast<int32_t>(rows);
  launch.num_rows = device(at::kInt, 1);
  launch.num_partials = plan.num_partials;
  if (plan.num_partials > 0) {
    block_.add(view(plan.partial_starts));
    launch.partial_starts = device(at::kInt, static_cast<int64_t>(plan.partial_starts.size()));
    block_.add(view(plan.merge_starts));
    launch.merge_starts = device(at::kInt, static_cast<int64_t>(plan.merge_starts.size()));
  }
  in.batch.tiles.push_back(std::move(launch));
}

void GpuInputBlock::add_packed(std::span<const StepSequence> sequences, kernels::PackedPlan plan,
                               GpuStepInputs& in) {
  std::vector<int32_t> pages;
  for (const auto& [sequence, num_pages] : plan.contexts) {
    const auto first = sequences[sequence].request->pages.begin();
    pages.insert(pages.end(), first, first + num_pages);
  }
  if (!pages.empty()) {
    block_.add(view(pages));
    in.batch.packed.earlier_pages =
        block_.last_on_device(at::kInt, static_cast<int64_t>(pages.size()));
  }
  in.batch.packed.own = std::move(plan.own);
  in.batch.packed.earlier = std::move(plan.earlier);
}

void GpuInputBlock::fill_attention(std::span<const StepSequence> all,
                                   std::span<const int64_t> places, int64_t rows, bool is_decode,
                                   GpuStepInputs& in) {
  const auto device = [&](at::ScalarType type, int64_t count) {
    return block_.last_on_device(type, count);
  };
  // Each row of padding is a sequence of its own, with one key in the spare page.
  int64_t num_tokens = 0, num_pages = 0;
  for (const StepSequence& it : all) {
    num_tokens += it.num_rows;
    num_pages += it.num_pages();
  }
  const int64_t padding = rows - num_tokens;
  const int64_t sequences = std::ssize(all) + padding;
  const auto spare = static_cast<int32_t>(spare_page_);

  const auto ids = block_.add<int64_t>(rows);
  in.ids_T = device(at::kLong, rows);
  const auto rotary_rows = block_.add<int64_t>(rows);
  in.rotary_row_T = device(at::kLong, rows);
  const auto indices = block_.add<int64_t>(rows);
  in.batch.index_T = device(at::kLong, rows);
  const auto slots = block_.add<int32_t>(rows);
  in.batch.slot_T = device(at::kInt, rows);
  in.window_batches.resize(static_cast<std::size_t>(num_window_groups_));
  std::vector<std::span<int32_t>> slots_by_group{slots}, starts_by_group;
  for (kernels::PagedBatch& batch : in.window_batches) {
    slots_by_group.push_back(block_.add<int32_t>(rows));
    batch.slot_T = device(at::kInt, rows);
  }
  const auto row_sequence = block_.add<int32_t>(rows);
  in.batch.row_sequence_T = device(at::kInt, rows);
  const auto query_starts = block_.add<int32_t>(sequences + 1);
  in.batch.query_starts = device(at::kInt, sequences + 1);
  starts_by_group.push_back(block_.add<int32_t>(sequences + 1));
  in.batch.page_starts = device(at::kInt, sequences + 1);
  for (kernels::PagedBatch& batch : in.window_batches) {
    starts_by_group.push_back(block_.add<int32_t>(sequences + 1));
    batch.page_starts = device(at::kInt, sequences + 1);
  }
  const auto last_page_tokens = block_.add<int32_t>(sequences);
  in.batch.last_page_tokens = device(at::kInt, sequences);
  const auto states = block_.add<int32_t>(has_states_ ? sequences : 0);
  if (has_states_) in.batch.state_S = device(at::kInt, sequences);

  fill_units(all, rows, is_decode, in);
  // Last, because their number changes from step to step: all tables are one list.
  const int64_t table_pages = num_pages + padding,
                all_pages = (1 + num_window_groups_) * table_pages;
  const auto pages = block_.add<int32_t>(all_pages);
  in.batch.pages = device(at::kInt, all_pages);
  in.batch.sees_new_keys = in.verifies_drafts;
  for (kernels::PagedBatch& batch : in.window_batches) {
    batch.sees_new_keys = in.verifies_drafts;
    batch.row_sequence_T = in.batch.row_sequence_T;
    batch.index_T = in.batch.index_T;
    batch.query_starts = in.batch.query_starts;
    batch.last_page_tokens = in.batch.last_page_tokens;
    batch.tiles = in.batch.tiles;
    batch.pages = in.batch.pages;
  }

  int64_t row = 0, page = 0, sequence = 0;
  for (const StepSequence& it : all) {
    const Request& request = *it.request;
    query_starts[sequence] = static_cast<int32_t>(row);
    const int64_t num_keys = it.num_keys();
    last_page_tokens[sequence] = static_cast<int32_t>((num_keys - 1) % kPageTokens + 1);
    if (has_states_) states[sequence] = request.state;
    for (std::size_t group = 0; group < slots_by_group.size(); ++group) {
      const std::vector<PageId>& table = table_of(request, group);
      const int64_t first = static_cast<int64_t>(group) * table_pages + page;
      starts_by_group[group][sequence] = static_cast<int32_t>(first);
      // What was given back is behind the window, where kernels do not look.
      std::transform(table.begin(), table.begin() + it.num_pages(), pages.begin() + first,
                     [&](PageId id) { return id == kNoPage ? spare : id; });
      for (int64_t i = 0; i < it.num_rows; ++i) {
        const int64_t position = it.begin + i;
        slots_by_group[group][row + i] = static_cast<int32_t>(
            table[position / kPageTokens] * kPageTokens + position % kPageTokens);
      }
    }
    page += it.num_pages();
    for (int64_t i = 0; i < it.num_rows; ++i, ++row) {
      const int64_t index = it.begin + i;
      const TokenId id = request.tokens[index];
      ids[row] = id == kPendingToken ? -places[request.sampled_row] - 1 : id;
      indices[row] = index;
      rotary_rows[row] = rotary_row(request, index);
      row_sequence[row] = static_cast<int32_t>(sequence);
    }
    ++sequence;
  }
  for (; row < rows; ++row, ++page, ++sequence) {
    query_starts[sequence] = static_cast<int32_t>(row);
    last_page_tokens[sequence] = 1;
    if (has_states_) states[sequence] = kNoState;
    for (std::size_t group = 0; group < slots_by_group.size(); ++group) {
      const int64_t first = static_cast<int64_t>(group) * table_pages + page;
      starts_by_group[group][sequence] = static_cast<int32_t>(first);
      pages[first] = spare;
      slots_by_group[group][row] = static_cast<int32_t>(spare * kPageTokens);
    }
    ids[row] = indices[row] = rotary_rows[row] = 0;
    row_sequence[row] = static_cast<int32_t>(sequence);
  }
  query_starts[sequence] = static_cast<int32_t>(row);
  for (std::size_t group = 0; group < starts_by_group.size(); ++group)
    starts_by_group[group][sequence] =
        static_cast<int32_t>(static_cast<int64_t>(group) * table_pages + page);
}

GpuStepInputs GpuInputBlock::fill(std::span<const Chunk> chunks,
                                  std::span<const kernels::RowExtras> extras,
                                  std::span<const int64_t> places, int64_t rows, bool is_decode,
                                  bool describes) {
  GpuStepInputs in;
  in.is_decode = is_decode;
  in.arithmetic = arithmetic_of(chunks);
  in.verifies_drafts = is_decode && has_drafts(chunks);
  block_.begin(describes);
  fill_sampling(chunks, extras, rows, is_decode, in);
  if (num_adapters_ > 0) fill_adapters(chunks, rows, in);
  fill_attention(sequences_of(chunks, is_decode), places, rows, is_decode, in);
  block_.send();
  return in;
}

}  // namespace slime::engine

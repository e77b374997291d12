#include "engine/ranks/mirrored_step.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/media_frame.h"
#include "engine/remote/frames.h"
#include "engine/sampler.h"
#include "engine/served_adapters.h"
#include "engine/step_runner.h"
#include "net/binary.h"

namespace slime::engine {
namespace {

using net::BinaryReader;
using net::BinaryWriter;
using net::FrameError;

/// What a request keeps as long as it lives. Its tokens go with each step, its media once.
std::string client_text(const Request& request) {
  RemoteRequest client{static_cast<uint64_t>(request.handle), request.client};
  client.request.input_ids.clear();
  client.request.media.clear();
  client.request.num_sampled = 0;
  // Masks go with each step.
  for (std::string SamplingParams::*grammar :
       {&SamplingParams::json_schema, &SamplingParams::regex, &SamplingParams::ebnf,
        &SamplingParams::structural_tag})
    (client.request.sampling.*grammar).clear();
  client.request.sampling.allowed_token_ids.clear();
  client.request.sampling.bad_words.clear();
  return to_frame(client);
}

/// Numbers that change from step to step, in the order in which they travel.
template <typename SomeRequest, typename Fn>
void each_number(SomeRequest& request, const Fn& fn) {
  fn(request.num_computed);
  fn(request.rotary_offset);
  fn(request.state);
  fn(request.num_in_state);
  fn(request.num_scored);
  fn(request.sampled_row);
  fn(request.draws_last);
}

template <typename SomeRequest, typename Fn>
void each_constant(SomeRequest& request, const Fn& fn) {
  fn(request.seed);
  fn(request.stream);
  fn(request.prompt_length);
  fn(request.max_tokens);
}

/// As a runner looks at it. A request keeps the slot that it began with.
std::shared_ptr<const LoadedAdapter> adapter_in(int64_t slot) {
  if (slot < 0) return nullptr;
  auto adapter = std::make_shared<LoadedAdapter>();
  adapter->slot = slot;
  return adapter;
}

/// `list` from `begin` on.
template <typename T>
void put_rest(BinaryWriter& out, const std::vector<T>& list, int64_t begin) {
  out.put(begin);
  out.put(std::vector<T>(list.begin() + begin, list.end()));
}

template <typename T>
void get_rest(BinaryReader& in, std::vector<T>& list) {
  int64_t begin = 0;
  in.get(begin);
  if (begin < 0 || begin > static_cast<int64_t>(list.size()))
    throw FrameError("a step goes on behind what was told before");
  std::vector<T> rest;
  in.get(rest);
  list.resize(static_cast<std::size_t>(begin));
  list.insert(list.end(), rest.begin(), rest.end());
}

/// `sent`: as it was told last, and is told now.
void put_pages(BinaryWriter& out, const std::vector<PageId>& pages, std::vector<PageId>& sent) {
  put_rest(out, pages, std::ranges::mismatch(pages, sent).in1 - pages.begin());
  sent = pages;
}

void put_counts(BinaryWriter& out, const Request& request) {
  out.put(static_cast<uint64_t>(request.output_counts.size()));
  for (const auto& [id, count] : request.output_counts) {
    out.put(id);
    out.put(count);
  }
}

void get_counts(BinaryReader& in, Request& request) {
  request.output_counts.clear();
  const std::size_t size = in.count(sizeof(TokenId) + sizeof(int64_t));
  for (std::size_t i = 0; i < size; ++i) {
    TokenId id = 0;
    in.get(id);
    in.get(request.output_counts[id]);
  }
}

}  // namespace

std::string StepFrames::frame_of(std::span<const Chunk> chunks) {
  BinaryWriter out;
  out.put(static_cast<uint64_t>(chunks.size()));
  std::unordered_map<uint64_t, Sent> sent;
  MediaWriter media(out);
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    const auto handle = static_cast<uint64_t>(request.handle);
    const auto before = sent_.find(handle);
    const bool is_new = before == sent_.end();
    Sent now = is_new ? Sent{} : std::move(before->second);
    out.put(handle);
    out.put(is_new);
    if (is_new) {
      out.put(client_text(request));
      each_constant(request, [&](const auto& number) { out.put(number); });
      out.put(slot_of(request.adapter));
      media.put(request.client.media);
    }
    const auto num_tokens = static_cast<int64_t>(request.tokens.size());
    put_rest(out, request.tokens, std::min(now.num_tokens, num_tokens));
    put_pages(out, request.pages, now.pages);
    if (is_new) out.put(static_cast<uint64_t>(request.window_pages.size()));
    now.window_pages.resize(request.window_pages.size());
    for (std::size_t i = 0; i < request.window_pages.size(); ++i)
      put_pages(out, request.window_pages[i], now.window_pages[i]);
    each_number(request, [&](const auto& number) { out.put(number); });
    out.put(chunk.num_tokens);
    out.put(chunk.num_drafts);
    out.put(chunk.feeds_draft_layer);
    out.put(chunk.num_foretold);
    out.put(chunk.arithmetic == StepArithmetic::kTraining);
    put_counts(out, request);
    out.put(request.allowed_W);
    // A token that is still to be sampled is told again once it is, and drafts are none.
    const auto settled = request.tokens.end() - std::max(chunk.num_drafts, request.num_tentative());
    const auto pending = std::find(request.tokens.begin() + std::min(now.num_tokens, num_tokens),
                                   settled, kPendingToken);
    now.num_tokens = pending - request.tokens.begin();
    sent.emplace(handle, std::move(now));
  }
  sent_ = std::move(sent);
  return out.take();
}

std::vector<Chunk> MirroredSteps::chunks_from(std::string_view frame) {
  BinaryReader in(frame);
  std::vector<Chunk> chunks;
  MediaReader media(in);
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests;
  for (std::size_t i = in.count(sizeof(uint64_t)); i > 0; --i) {
    uint64_t handle = 0;
    bool is_new = false;
    in.get(handle);
    in.get(is_new);
    std::unique_ptr<Request> request;
    if (is_new) {
      request = std::make_unique<Request>();
      std::string client;
      in.get(client);
      request->client = remote_request_from(client).request;
      request->handle = static_cast<RequestHandle>(handle);
      each_constant(*request, [&](auto& number) { in.get(number); });
      int64_t slot = 0;
      in.get(slot);
      request->adapter = adapter_in(slot);
      if (!media.get(request->client.media, request->prompt_length))
        throw FrameError("a step has media spans that are none");
    } else {
      const auto known = requests_.find(handle);
      if (known == requests_.end()) throw FrameError("a step has a request that nobody told of");
      request = std::move(known->second);
      requests_.erase(known);
    }
    get_rest(in, request->tokens);
    get_rest(in, request->pages);
    if (is_new) request->window_pages.resize(in.count(2 * sizeof(uint64_t)));
    for (std::vector<PageId>& table : request->window_pages) get_rest(in, table);
    each_number(*request, [&](auto& number) { in.get(number); });
    Chunk chunk{.request = request.get()};
    in.get(chunk.num_tokens);
    in.get(chunk.num_drafts);
    in.get(chunk.feeds_draft_layer);
    in.get(chunk.num_foretold);
    bool is_exact = false;
    in.get(is_exact);
    if (is_exact) chunk.arithmetic = StepArithmetic::kTraining;
    get_counts(in, *request);
    in.get(request->allowed_W);
    if (request->num_computed < 0 || chunk.num_tokens < 1 ||
        chunk.num_tokens > request->num_missing() || chunk.num_drafts < 0 ||
        chunk.num_drafts >= chunk.num_tokens || chunk.num_foretold < 0 ||
        (chunk.num_foretold > 0 && !(chunk.feeds_draft_layer && draws_token(chunk))))
      throw FrameError("a step computes tokens that a request does not have");
    chunks.push_back(chunk);
    requests.emplace(handle, std::move(request));
  }
  in.end();
  requests_ = std::move(requests);
  return chunks;
}

}  // namespace slime::engine

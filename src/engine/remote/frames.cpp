#include "engine/remote/frames.h"

#include <fmt/format.h>

#include "core/media_frame.h"
#include "engine/request_fields.h"
#include "net/binary.h"

namespace slime::engine {
namespace {

using net::BinaryReader;
using net::BinaryWriter;
using net::FrameError;

void put(BinaryWriter& out, const std::vector<std::string>& texts) {
  out.put(static_cast<uint64_t>(texts.size()));
  for (const std::string& text : texts) out.put(text);
}
void get(BinaryReader& in, std::vector<std::string>& texts) {
  texts.resize(in.count(sizeof(uint64_t)));
  for (std::string& text : texts) in.get(text);
}

void put(BinaryWriter& out, const std::vector<std::pair<TokenId, double>>& pairs) {
  out.put(static_cast<uint64_t>(pairs.size()));
  for (const auto& [id, number] : pairs) {
    out.put(id);
    out.put(number);
  }
}
void get(BinaryReader& in, std::vector<std::pair<TokenId, double>>& pairs) {
  pairs.resize(in.count(sizeof(TokenId) + sizeof(double)));
  for (auto& [id, number] : pairs) {
    in.get(id);
    in.get(number);
  }
}

void put(BinaryWriter& out, const std::optional<uint64_t>& number) {
  out.put(number.has_value());
  if (number) out.put(*number);
}
void get(BinaryReader& in, std::optional<uint64_t>& number) {
  bool is_there = false;
  in.get(is_there);
  if (is_there) in.get(number.emplace());
}

void put(BinaryWriter& out, const std::vector<MediaSpan>& media) { MediaWriter(out).put(media); }

template <typename T>
requires requires(BinaryWriter& out, const T& value) { out.put(value); }
void put(BinaryWriter& out, const T& value) { out.put(value); }
template <typename T>
requires requires(BinaryReader& in, T& value) { in.get(value); }
void get(BinaryReader& in, T& value) { in.get(value); }

template <typename Load, typename Fn>
void each_load_field(Load& load, const Fn& fn) {
  fn(load.num_running);
  fn(load.num_waiting);
  fn(load.num_kv_tokens_used);
  fn(load.num_kv_tokens);
  fn(load.num_kv_tokens_given_back);
  fn(load.steps_done);
  fn(load.seconds_since_step);
  fn(load.seconds_without_progress);
  fn(load.decode_tokens_per_second);
  fn(load.is_paused);
  each_grammar_number(fn, load.grammars);
  fn(load.drafts.num_drafted);
  fn(load.drafts.num_kept);
  fn(load.drafts.num_steps);
  fn(load.drafts.num_compared);
  fn(load.drafts.num_redrawn);
}

}  // namespace

std::string to_frame(const RemoteRequest& request) {
  BinaryWriter out;
  out.put(request.number);
  each_field(request.request, [&](const auto& field) { put(out, field); });
  return out.take();
}

RemoteRequest remote_request_from(std::string_view frame) {
  BinaryReader in(frame);
  RemoteRequest request;
  in.get(request.number);
  GenerateRequest& to = request.request;
  each_field(to, [&](auto& field) {
    if constexpr (std::is_same_v<decltype(field), std::vector<MediaSpan>&>) {
      // Behind the ids.
      if (!MediaReader(in).get(field, static_cast<int64_t>(to.input_ids.size())))
        throw FrameError("a request has media spans that are none");
    } else {
      get(in, field);
    }
  });
  in.end();
  return request;
}

namespace {

/// The end of a frame: some of many bytes.
template <typename Piece>
void put_piece(BinaryWriter& out, const Piece& piece) {
  out.put(piece.total_bytes);
  out.put(piece.offset);
  out.put(piece.bytes);
}

/// A piece of `what`, which ends with `whole`.
template <typename Piece>
void get_piece(BinaryReader& in, Piece& piece, const char* what, const char* whole) {
  in.get(piece.total_bytes);
  in.get(piece.offset);
  const std::size_t size = in.count(1);
  piece.bytes = in.rest();
  if (piece.bytes.size() != size)
    throw FrameError(fmt::format("a piece of {} has another length", what));
  if (piece.offset > piece.total_bytes || size > piece.total_bytes - piece.offset)
    throw FrameError(fmt::format("a piece of {} ends behind {}", what, whole));
}

}  // namespace

std::string to_frame(const WeightPiece& piece) {
  BinaryWriter out;
  put_piece(out, piece);
  return out.take();
}

WeightPiece weight_piece_from(std::string_view frame) {
  BinaryReader in(frame);
  WeightPiece piece;
  get_piece(in, piece, "weights", "the weights");
  return piece;
}

std::string to_frame(const DeltaPiece& piece) {
  BinaryWriter out;
  out.put(piece.tensor);
  out.put(static_cast<uint8_t>(piece.form));
  out.put(piece.checksum);
  put_piece(out, piece);
  return out.take();
}

DeltaPiece delta_piece_from(std::string_view frame) {
  BinaryReader in(frame);
  DeltaPiece piece;
  in.get(piece.tensor);
  using Form = model::TensorDelta::Form;
  piece.form = static_cast<Form>(in.below(static_cast<uint8_t>(Form::kWhole) + 1));
  in.get(piece.checksum);
  get_piece(in, piece, "a change", "the change");
  if (piece.bytes.empty()) throw FrameError("a piece of a change has another length");
  return piece;
}

std::string to_frame(const ControlCall& call) {
  BinaryWriter out;
  out.put(call.number);
  out.put(static_cast<uint8_t>(call.kind));
  out.put(static_cast<uint8_t>(call.pause_mode));
  out.put(call.version);
  out.put(static_cast<uint8_t>(call.source));
  out.put(call.directory);
  out.put(call.constants);
  out.put(static_cast<uint8_t>(call.running));
  out.put(call.stays_paused);
  out.put(call.epoch);
  out.put(call.publication);
  out.put(call.base);
  out.put(call.num_changed);
  out.put(static_cast<uint8_t>(call.check));
  return out.take();
}

ControlCall control_call_from(std::string_view frame) {
  BinaryReader in(frame);
  ControlCall call;
  in.get(call.number);
  call.kind = static_cast<ControlCall::Kind>(
      in.below(static_cast<uint8_t>(ControlCall::Kind::kCheckWeights) + 1));
  call.pause_mode = static_cast<PauseMode>(in.below(static_cast<uint8_t>(PauseMode::kInPlace) + 1));
  in.get(call.version);
  call.source = static_cast<ControlCall::Source>(
      in.below(static_cast<uint8_t>(ControlCall::Source::kDeltaDirectory) + 1));
  in.get(call.directory);
  in.get(call.constants);
  call.running =
      static_cast<RunningRequests>(in.below(static_cast<uint8_t>(RunningRequests::kDrop) + 1));
  in.get(call.stays_paused);
  in.get(call.epoch);
  in.get(call.publication);
  in.get(call.base);
  in.get(call.num_changed);
  call.check = static_cast<WeightCheck>(in.below(static_cast<uint8_t>(WeightCheck::kReset) + 1));
  in.end();
  return call;
}

std::string to_frame(const ControlAnswer& answer) {
  BinaryWriter out;
  out.put(answer.number);
  out.put(answer.error.has_value());
  if (answer.error) out.put(*answer.error);
  out.put(answer.is_flushed);
  each_load_field(answer.load, [&](const auto& field) { out.put(field); });
  out.put(answer.copy_seconds);
  out.put(static_cast<uint64_t>(answer.handles.size()));
  for (const std::string& handle : answer.handles) out.put(handle);
  out.put(static_cast<uint64_t>(answer.checksums.size()));
  for (const TensorChecksum& tensor : answer.checksums) {
    out.put(tensor.name);
    out.put(tensor.checksum);
  }
  return out.take();
}

ControlAnswer control_answer_from(std::string_view frame) {
  BinaryReader in(frame);
  ControlAnswer answer;
  in.get(answer.number);
  bool is_error = false;
  in.get(is_error);
  if (is_error) in.get(answer.error.emplace());
  in.get(answer.is_flushed);
  each_load_field(answer.load, [&](auto& field) { in.get(field); });
  in.get(answer.copy_seconds);
  answer.handles.resize(in.count(sizeof(uint64_t)));
  for (std::string& handle : answer.handles) in.get(handle);
  answer.checksums.resize(in.count(2 * sizeof(uint64_t)));
  for (TensorChecksum& tensor : answer.checksums) {
    in.get(tensor.name);
    in.get(tensor.checksum);
  }
  in.end();
  return answer;
}

std::string activity_frame(Activity activity) {
  return std::string(1, static_cast<char>(activity));
}

Activity activity_from(std::string_view frame) {
  BinaryReader in(frame);
  const auto activity =
      static_cast<Activity>(in.below(static_cast<uint8_t>(Activity::kPaused) + 1));
  in.end();
  return activity;
}

std::string number_frame(uint64_t number) {
  BinaryWriter out;
  out.put(number);
  return out.take();
}

uint64_t number_from(std::string_view frame) {
  BinaryReader in(frame);
  uint64_t number = 0;
  in.get(number);
  in.end();
  return number;
}

}  // namespace slime::engine

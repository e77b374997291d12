#include "comm/rank_meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "comm/socket_transfer.h"
#include "core/error.h"

namespace slime::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
constexpr const char* kRole = "rank";
constexpr std::size_t kTableLimit = std::size_t{1} << 20;
constexpr int kMostRanks = 1 << 20;

/// The next number of `text`, which is cut; nothing where there is none between the bounds.
std::optional<int64_t> take_number(std::string_view& text, int64_t low, int64_t high) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || number < low || number > high || rest == end || *rest != ' ')
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest + 1 - text.data()));
  return number;
}

/// A text with its length in front, over a connection that has been proven.
void send_text(int socket, std::string text, milliseconds timeout) {
  uint64_t length = text.size();
  using enum Transfer::Direction;
  std::vector<Transfer> parts{{.direction = kSend,
                               .socket = socket,
                               .number = 0,
                               .bytes = reinterpret_cast<char*>(&length),
                               .size = sizeof length},
                              {.direction = kSend,
                               .socket = socket,
                               .number = 1,
                               .bytes = text.data(),
                               .size = text.size()}};
  move_all(parts, timeout, timeout);
}

std::string receive_text(int socket, milliseconds timeout) {
  uint64_t length = 0;
  using enum Transfer::Direction;
  std::vector<Transfer> first{{.direction = kReceive,
                               .socket = socket,
                               .number = 0,
                               .bytes = reinterpret_cast<char*>(&length),
                               .size = sizeof length}};
  move_all(first, timeout, timeout);
  if (length > kTableLimit) throw TransferError("the table of the ranks is too long");
  std::string text(length, '\0');
  std::vector<Transfer> second{{.direction = kReceive,
                                .socket = socket,
                                .number = 1,
                                .bytes = text.data(),
                                .size = text.size()}};
  move_all(second, timeout, timeout);
  return text;
}

/// "40123 10.0.0.2\n" of each rank.
std::vector<std::pair<std::string, int>> table_from(std::string_view text, int size) {
  std::vector<std::pair<std::string, int>> table;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto port = take_number(line, 0, 65'535);
    check(port.has_value(), "a line of the table has a port and an address");
    table.emplace_back(line, static_cast<int>(*port));
  }
  check(static_cast<int>(table.size()) == size, "the table has every rank");
  return table;
}

}  // namespace

std::string to_text(const RankClaim& claim) {
  return fmt::format("{} {} {} {} {}", claim.epoch, claim.rank, claim.group, claim.port,
                     claim.address);
}

std::optional<RankClaim> rank_claim_from(std::string_view text) {
  const auto epoch = take_number(text, 0, std::numeric_limits<int64_t>::max());
  const auto rank = epoch ? take_number(text, 0, kMostRanks) : std::nullopt;
  const auto group = rank ? take_number(text, RankClaim::kTable, kMostRanks) : std::nullopt;
  const auto port = group ? take_number(text, 0, 65'535) : std::nullopt;
  if (!port || text.find_first_not_of("0123456789.") != text.npos) return std::nullopt;
  return RankClaim{.epoch = *epoch,
                   .rank = static_cast<int>(*rank),
                   .group = static_cast<int>(*group),
                   .port = static_cast<int>(*port),
                   .address = std::string(text)};
}

RankMeeting::RankMeeting(const SocketMeshConfig& config, int listening)
    : config_(config),
      deadline_(Steady::now() + config.connect_timeout),
      listener_(listening, config.token),
      watcher_([this](const std::stop_token& stop) { watch(stop); }) {
  if (config_.rank == 0) return;
  to_first_ = connect_to(config_.meeting, config_.port,
                         {.epoch = config_.epoch,
                          .rank = config_.rank,
                          .group = RankClaim::kTable,
                          .port = listener_.port(),
                          .address = config_.address});
}

RankMeeting::~RankMeeting() {
  watcher_.request_stop();
  watcher_.join();
  for (const auto& [key, arrived] : arrived_) ::close(arrived.socket);
  if (to_first_ >= 0) ::close(to_first_);
}

milliseconds RankMeeting::left() const {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline_ - Steady::now()));
}

void RankMeeting::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    listener_.wait(kLook);
    for (const auto& caller : listener_.look()) greet(*caller);
  }
}

void RankMeeting::greet(net::HandshakePeer& caller) {
  const auto claim = rank_claim_from(caller.claim().text);
  if (caller.claim().role != kRole || !claim) return caller.refuse("here ranks meet");
  if (claim->epoch != config_.epoch) {
    return caller.refuse(
        fmt::format("rank {} is refused: it is of epoch {}, and the ranks meet in epoch {}",
                    claim->rank, claim->epoch, config_.epoch));
  }
  const bool fits = claim->rank > config_.rank && claim->rank < config_.layout.world_size() &&
                    (claim->group != RankClaim::kTable || config_.rank == 0);
  const std::lock_guard lock(mutex_);
  const std::pair key{claim->group, claim->rank};
  if (!fits || arrived_.contains(key))
    return caller.refuse(fmt::format("nobody waits for rank {}", claim->rank));
  arrived_[key] = {.socket = caller.welcome(), .claim = *claim};
  changed_.notify_all();
}

RankMeeting::Arrived RankMeeting::wait_for(int group, int peer) {
  std::unique_lock lock(mutex_);
  const std::pair key{group, peer};
  if (!changed_.wait_until(lock, deadline_, [&] { return arrived_.contains(key); })) {
    throw std::runtime_error(
        fmt::format("rank {} has not come within {} ms", peer, config_.connect_timeout.count()));
  }
  // It stays known as one that came.
  Arrived& arrived = arrived_.at(key);
  return {.socket = std::exchange(arrived.socket, -1), .claim = arrived.claim};
}

int RankMeeting::connect_to(const std::string& address, int port, const RankClaim& claim) {
  const int socket = net::connect_to(address, port, left());
  try {
    net::introduce(socket, config_.token, {.role = kRole, .text = to_text(claim)}, left());
  } catch (...) {
    ::close(socket);
    throw;
  }
  return socket;
}

void RankMeeting::exchange_table() {
  const int size = config_.layout.world_size();
  if (config_.rank != 0) {
    table_ = table_from(receive_text(to_first_, left()), size);
    ::close(std::exchange(to_first_, -1));
    return;
  }
  std::string text = fmt::format("{} {}\n", listener_.port(), config_.meeting);
  std::vector<int> sockets;
  for (int rank = 1; rank < size; ++rank) {
    const Arrived arrived = wait_for(RankClaim::kTable, rank);
    sockets.push_back(arrived.socket);
    text += fmt::format("{} {}\n", arrived.claim.port, arrived.claim.address);
  }
  for (const int socket : sockets) send_text(socket, text, left());
  for (const int socket : sockets) ::close(socket);
  table_ = table_from(text, size);
}

int RankMeeting::connect(int group, int peer) {
  if (table_.empty()) exchange_table();
  if (peer > config_.rank) return wait_for(group, peer).socket;
  const auto& [address, port] = table_.at(static_cast<std::size_t>(peer));
  return connect_to(address, port,
                    {.epoch = config_.epoch,
                     .rank = config_.rank,
                     .group = group,
                     .port = 0,
                     .address = config_.address});
}

}  // namespace slime::comm

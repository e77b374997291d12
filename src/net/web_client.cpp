#include "net/web_client.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/url/encode.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <boost/url/url.hpp>
#include <filesystem>
#include <limits>

#include "core/base64.h"
#include "net/url_parts.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::beast::tcp_stream;
using boost::system::error_code;

using WebOutcome = Expected<WebHead, WebError>;

tl::unexpected<WebError> web_failure(std::string message, bool is_lasting = false) {
  return tl::make_unexpected(WebError{std::move(message), is_lasting});
}

Expected<UrlParts, WebError> parse_web_address(const std::string& text) {
  const auto at = url_parts(text);
  if (!at || (at->scheme != "http" && at->scheme != "https") || at->host.empty())
    return web_failure(fmt::format("\"{}\" is no URL of http or https", text), true);
  return *at;
}

bool is_https(const UrlParts& at) { return at.scheme == "https"; }

/// Of the system: Debian's and others' places, as the static OpenSSL knows only one of them.
constexpr std::array<const char*, 4> kBundles{"/etc/ssl/certs/ca-certificates.crt",
                                              "/etc/pki/tls/certs/ca-bundle.crt",
                                              "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

std::string load_certificates(asio::ssl::context& tls, const WebSettings& settings) {
  error_code error;
  if (!settings.ca_file.empty()) {
    tls.load_verify_file(settings.ca_file, error);
    return error ? fmt::format("{}: no certificates: {}", settings.ca_file, error.message()) : "";
  }
  for (const char* bundle : kBundles) {
    std::error_code missing;
    if (!std::filesystem::exists(bundle, missing)) continue;
    tls.load_verify_file(bundle, error);
    if (!error) return "";
  }
  tls.set_default_verify_paths(error);
  return error ? "no certificates of this system: " + error.message() : "";
}

/// One call on a stream that is connected, TLS or not. `lowest` keeps the time.
template <typename Stream>
class Exchange {
 public:
  Exchange(Stream& stream, tcp_stream& lowest, const WebCall& call, const WebSettings& settings)
      : stream_(stream), lowest_(lowest), call_(call), settings_(settings) {}

  asio::awaitable<WebOutcome> run(http::request<http::string_body> request) {
    error_code error;
    lowest_.expires_after(settings_.silence_limit);
    co_await http::async_write(stream_, request, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return problem("cannot send", error);
    boost::beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<uint64_t>::max());  // who reads it has limits
    parser.header_limit(kHeaderBytes);
    if (call_.method == "HEAD") parser.skip(true);
    lowest_.expires_after(settings_.silence_limit);
    co_await http::async_read_header(stream_, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return problem("no answer", error);
    WebHead head;
    head.status = static_cast<int>(parser.get().result_int());
    for (const auto& field : parser.get())
      head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    if (call_.on_head && !call_.on_head(head)) co_return head;
    std::string block(kBlockBytes, '\0');
    while (!parser.is_done()) {
      parser.get().body().data = block.data();
      parser.get().body().size = block.size();
      lowest_.expires_after(settings_.silence_limit);
      co_await http::async_read_some(stream_, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
      if (error == http::error::need_buffer) error = {};
      const std::size_t count = block.size() - parser.get().body().size;
      if (count > 0 && call_.on_body) call_.on_body(std::string_view(block.data(), count));
      if (error) co_return problem("the answer broke off", error);
    }
    co_return head;
  }

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
  static constexpr std::uint32_t kHeaderBytes = 64 << 10;

  WebOutcome problem(std::string_view what, const error_code& error) const {
    return web_failure(fmt::format("{}: {}", what, error.message()));
  }

  Stream& stream_;
  tcp_stream& lowest_;
  const WebCall& call_;
  const WebSettings& settings_;
};

http::request<http::string_body> to_request(const WebCall& call, const UrlParts& to) {
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(call.method);
  request.target(to.target);
  for (const auto& [name, value] : call.headers) request.insert(name, value);
  request.set(http::field::host, to.authority);
  request.set(http::field::connection, "close");
  if (!call.body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = call.body;
    request.prepare_payload();
  }
  return request;
}

/// Asks a proxy for a tunnel; an error says why there is none.
asio::awaitable<std::string> open_tunnel(tcp_stream& stream, const UrlParts& to,
                                         const std::string& login, const WebSettings& settings) {
  error_code error;
  const std::string place = to.host + ":" + to.port;
  http::request<http::empty_body> request(http::verb::connect, place, 11);
  request.set(http::field::host, place);
  if (!login.empty()) request.set(http::field::proxy_authorization, "Basic " + to_base64(login));
  stream.expires_after(settings.silence_limit);
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return "the proxy takes nothing: " + error.message();
  boost::beast::flat_buffer buffer;
  http::response_parser<http::empty_body> parser;
  parser.skip(true);
  co_await http::async_read(stream, buffer, parser,
                            asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return "the proxy does not answer: " + error.message();
  if (parser.get().result() != http::status::ok)
    co_return fmt::format("the proxy refuses with status {}", parser.get().result_int());
  co_return "";
}

std::string why_no_handshake(SSL* ssl, const error_code& error) {
  const long verified = ::SSL_get_verify_result(ssl);
  if (verified == X509_V_OK) return "no TLS: " + error.message();
  return fmt::format(
      "its certificate is not trusted: {}. SSL_CERT_FILE names a file with other authorities",
      ::X509_verify_cert_error_string(verified));
}

asio::awaitable<WebOutcome> call_over_tls(tcp_stream raw, const UrlParts& to, const WebCall& call,
                                          const WebSettings& settings) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  ::SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  if (const std::string problem = load_certificates(tls, settings); !problem.empty())
    co_return web_failure(problem, true);
  boost::beast::ssl_stream<tcp_stream> stream(std::move(raw), tls);
  stream.set_verify_mode(asio::ssl::verify_peer);
  stream.set_verify_callback(asio::ssl::host_name_verification(to.host));
  error_code error;
  asio::ip::make_address(to.host, error);
  if (error) ::SSL_set_tlsext_host_name(stream.native_handle(), to.host.c_str());  // SNI: a name
  error = {};
  tcp_stream& lowest = boost::beast::get_lowest_layer(stream);
  lowest.expires_after(settings.silence_limit);
  co_await stream.async_handshake(asio::ssl::stream_base::client,
                                  asio::redirect_error(asio::use_awaitable, error));
  if (error) {
    const bool is_untrusted = ::SSL_get_verify_result(stream.native_handle()) != X509_V_OK;
    co_return web_failure(why_no_handshake(stream.native_handle(), error), is_untrusted);
  }
  // No shutdown of TLS: lengths and checksums say whether a body is whole.
  co_return co_await Exchange(stream, lowest, call, settings).run(to_request(call, to));
}

asio::awaitable<WebOutcome> run_call(WebCall call, WebSettings settings) {
  const auto to = parse_web_address(call.url);
  if (!to) co_return tl::make_unexpected(to.error());
  const std::string& proxy = is_https(*to) ? settings.https_proxy : settings.http_proxy;
  const bool has_proxy = !proxy.empty() && !needs_no_proxy(to->host, settings.no_proxy);
  const auto first = has_proxy ? parse_web_address(proxy) : to;
  if (!first || (has_proxy && is_https(*first)))
    co_return web_failure("the proxy should be http://host:port", true);
  const std::string whom = has_proxy ? "the proxy " + first->authority : first->authority;
  const auto executor = co_await asio::this_coro::executor;
  error_code error;
  tcp::resolver resolver(executor);
  const auto endpoints = co_await resolver.async_resolve(
      first->host, first->port, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return web_failure(fmt::format("cannot resolve {}: {}", whom, error.message()));
  tcp_stream stream(executor);
  stream.expires_after(settings.silence_limit);
  co_await stream.async_connect(endpoints, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return web_failure(fmt::format("cannot connect to {}: {}", whom, error.message()));
  if (is_https(*to)) {
    if (has_proxy) {
      const std::string problem = co_await open_tunnel(stream, *to, first->login, settings);
      if (!problem.empty()) co_return web_failure(problem);
    }
    co_return co_await call_over_tls(std::move(stream), *to, call, settings);
  }
  http::request<http::string_body> request = to_request(call, *to);
  if (has_proxy) {
    request.target("http://" + to->authority + to->target);
    if (!first->login.empty())
      request.set(http::field::proxy_authorization, "Basic " + to_base64(first->login));
  }
  co_return co_await Exchange(stream, stream, call, settings).run(std::move(request));
}

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

}  // namespace

Expected<WebHead, WebError> web_call(const WebCall& call, const WebSettings& settings,
                                     const std::stop_token& stop) {
  asio::io_context context(1);
  WebOutcome result = web_failure("stopped", true);
  std::exception_ptr thrown;
  asio::co_spawn(context, run_call(call, settings),
                 [&](std::exception_ptr exception, WebOutcome value) {
                   thrown = exception;
                   if (!exception) result = std::move(value);
                 });
  {
    const std::stop_callback on_stop(stop, [&context] { context.stop(); });
    context.run();
  }
  if (thrown) std::rethrow_exception(thrown);
  return result;
}

std::string origin_of(std::string_view url) {
  const auto at = parse_web_address(std::string(url));
  if (!at) return "";
  return fmt::format("{}://{}:{}", at->scheme, small_letters(at->host), at->port);
}

std::string redirected(std::string_view url, std::string_view location) {
  const auto base = boost::urls::parse_uri(url);
  const auto reference = boost::urls::parse_uri_reference(location);
  if (!base || !reference) return "";
  boost::urls::url whole;
  if (!boost::urls::resolve(*base, *reference, whole)) return "";
  whole.remove_fragment();
  const std::string text(whole.buffer());
  return origin_of(text).empty() ? "" : text;
}

std::string encoded_path(std::string_view path) {
  return boost::urls::encode(path, boost::urls::unreserved_chars + '/');
}

bool needs_no_proxy(std::string_view host, std::string_view no_proxy) {
  const std::string name = small_letters(host);
  if (name == "localhost" || name == "::1" || name.starts_with("127.")) return true;
  while (!no_proxy.empty()) {
    const std::size_t comma = no_proxy.find(',');
    std::string_view part = no_proxy.substr(0, comma);
    no_proxy.remove_prefix(comma == std::string_view::npos ? no_proxy.size() : comma + 1);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (part == "*") return true;
    while (!part.empty() && part.front() == '.') part.remove_prefix(1);
    const std::string suffix = small_letters(part);
    if (!suffix.empty() && (name == suffix || name.ends_with("." + suffix))) return true;
  }
  return false;
}

}  // namespace slime::net

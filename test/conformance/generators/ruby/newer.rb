# Values and fields of a newer server do not break the SDK, and an unknown charge is not a false.
require 'json'
require 'parley'

def equal(want, got)
  raise "#{got.inspect}, want #{want.inspect}" unless want == got
end

newer = JSON.parse(File.read('test/conformance/newer.json'), symbolize_names: true)
error = Parley::ParleyError.build_from_hash(newer[:error])
equal 'code_of_a_newer_server', error.code
equal nil, error.charged
unread = Parley::UnreadPage.build_from_hash(newer[:unread])
equal 'type_of_a_newer_server', unread.notices[0].type
equal 'type_of_a_newer_server', unread.messages[0].about.type

# Ruby loads a file when its class is first used.
Parley.constants.each { |name| Parley.const_get(name) }

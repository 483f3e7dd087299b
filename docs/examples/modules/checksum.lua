-- Checksum of a stream: the messages of a root with one tag are a stream of bytes. Their sums run along as they
-- arrive, and nothing is delivered. An empty message ends the stream: then the host gets three numbers, how many
-- bytes there were, their sum, and the sum of the sums after each message.

local streams = {}

function on_message(message)
  local key = message.root .. ":" .. message.tag
  local stream = streams[key] or { bytes = 0, sum = 0, sums = 0 }
  streams[key] = stream
  if message.length > 0 then
    stream.bytes = stream.bytes + message.length
    stream.sum = stream.sum + message:view("uint8"):sum()
    stream.sums = stream.sums + stream.sum
    return
  end
  streams[key] = nil
  local result = new(24, message.tag, message.root)
  local numbers = result:view("int64")
  numbers[1], numbers[2], numbers[3] = stream.bytes, stream.sum, stream.sums
  result:deliver()
end

-- Work-stealing queue: each processor keeps the tasks of its process. Who has none left gets one of another
-- process, whose host is not disturbed.
--
-- From the host, to the own processor:  "put TEXT" keeps a task, "take" asks for one.
-- Delivered to the host:                the task's TEXT, or "" if nobody has one. The root is who has asked.
-- Between processors:                   "steal", which goes round the ring until somebody has a task.

local tasks = {}
local first, last = 1, 0

local function tell(message, text)
  local answer = new(#text, message.tag, message.root)
  answer:put(text)
  if message.root == rank then
    answer:deliver()
  else
    -- The module there delivers what begins with neither of its own words.
    local passed = new(#text + 5, message.tag, message.root)
    passed:put("gave " .. text)
    passed:send(message.root)
  end
end

function on_message(message)
  local text = message:text()
  local word = text:sub(1, 4)
  if word == "put " then
    last = last + 1
    tasks[last] = text:sub(5)
  elseif word == "gave" then
    local task = new(#text - 5, message.tag, message.root)
    task:put(text:sub(6))
    task:deliver()
  elseif text == "take" and last >= first then
    -- The own process takes the newest one.
    local task = tasks[last]
    tasks[last] = nil
    last = last - 1
    tell(message, task)
  elseif text == "steal" and last >= first then
    -- Others take the oldest one.
    local task = tasks[first]
    tasks[first] = nil
    first = first + 1
    tell(message, task)
  elseif (rank + 1) % size == message.root then
    tell(message, "")
  else
    local question = new(5, message.tag, message.root)
    question:put("steal")
    question:send((rank + 1) % size)
  end
end

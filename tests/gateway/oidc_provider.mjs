// A real OpenID provider on loopback, for tests/gateway/test_oidc.py: `node oidc_provider.mjs MODULES REDIRECT`.
// It prints its issuer. Whoever logs in is who they say; `swapper` and `forger` get tokens that must not count.
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [modules, redirect] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`).href);

const groups = { ada: ['staff', 'lab'], bob: ['staff'], swapper: [], forger: [] };
let changed = {};
const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const client = (id) => ({
    client_id: id,
    client_secret: `secret-of-${id}`,
    redirect_uris: [redirect],
    post_logout_redirect_uris: [new URL('/', redirect).href],
    grant_types: ['authorization_code', 'refresh_token'],
  });
  const provider = new Provider(issuer, {
    clients: [client('holdfast'), client('other')],
    claims: { openid: ['sub', 'groups'], email: ['email', 'email_verified'], profile: ['name'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['of the tests alone'] },
    pkce: { required: () => true },
    issueRefreshToken: async () => true,
    features: { devInteractions: { enabled: true }, revocation: { enabled: true } },
    findAccount: async (_, id) => ({
      accountId: id,
      claims: async () => ({
        sub: id,
        email: `${id}@example.org`,
        email_verified: id !== 'unsure',
        name: id,
        groups: changed[id] ?? groups[id] ?? [],
      }),
    }),
  });
  let others;
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.path !== '/token' || !ctx.body?.id_token) return;
    if (ctx.oidc.client.clientId === 'other') others = ctx.body.id_token;
    const id = ctx.oidc.account?.accountId;
    if (id === 'swapper' && ctx.oidc.client.clientId === 'holdfast' && others) ctx.body.id_token = others;
    if (id === 'forger') {
      const parts = ctx.body.id_token.split('.');
      const claims = { ...JSON.parse(Buffer.from(parts[1], 'base64url')), sub: 'ada' };
      parts[1] = Buffer.from(JSON.stringify(claims)).toString('base64url');
      ctx.body.id_token = parts.join('.');
    }
  });
  const answer = provider.callback();
  server.on('request', (request, response) => {
    const asked = new URL(request.url, issuer);
    if (asked.pathname === '/test/groups') {
      changed = JSON.parse(asked.searchParams.get('of'));
      response.end();
    } else answer(request, response);
  });
  console.log(issuer);
});
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
